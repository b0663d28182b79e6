"""A damaged parts folder is refused with the file's name and the remedy."""

import json
import shutil

import numpy as np
import pytest
from partition.graphs import communities

from isthmus.errors import InputError
from isthmus.partition import Book, partition


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    out = tmp_path_factory.mktemp("book") / "parts"
    partition(communities(), 3, "random", out=out)
    return out


@pytest.fixture
def folder(original, tmp_path):
    return shutil.copytree(original, tmp_path / "parts")


def edit(folder, **changes):
    book = json.loads((folder / "book.json").read_text())
    (folder / "book.json").write_text(json.dumps({**book, **changes}))


def test_reads_what_was_written(folder):
    book = Book.read(folder)
    assert book.num_parts == 3
    assert json.loads((folder / "book.json").read_text()) == {
        "format": "isthmus-parts", "version": 1, **json.loads(json.dumps(book.as_dict()))
    }  # fmt: skip
    book.verify_checksums()


def test_not_a_parts_folder(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(
            InputError, match=r"parts folder.*: `isthmus partition SOURCE --parts N --out DIR` makes one"
        ):
            Book.read(path)
    (tmp_path / "book.json").write_text('{"format": "cookery"}')
    with pytest.raises(InputError, match=r"parts folder.*: `isthmus partition SOURCE --parts N --out DIR` makes one"):
        Book.read(tmp_path)


@pytest.mark.parametrize("text", ["", "[1]", '{"format": "isthmus-parts"', '{"format": "isthmus-parts", "version": 1}'])
def test_damaged_book(folder, text):
    (folder / "book.json").write_text(text)
    with pytest.raises(InputError, match=r"book\.json"):
        Book.read(folder)


def test_version_from_the_future(folder):
    edit(folder, version=2)
    with pytest.raises(InputError, match="upgrade isthmus"):
        Book.read(folder)


def test_ranges_that_contradict_the_parts(folder):
    ranges = list(Book.read(folder).ranges)
    ranges[1] += 1
    edit(folder, ranges=ranges)
    with pytest.raises(InputError, match="contradicts itself"):
        Book.read(folder)


def test_missing_file(folder):
    (folder / "part-1" / "send_rows.npy").unlink()
    with pytest.raises(InputError, match=r"part-1/send_rows\.npy is missing"):
        Book.read(folder)


def test_truncated_file(folder):
    path = folder / "part-2" / "x.npy"
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(InputError, match=r"part-2/x\.npy has .* bytes instead of"):
        Book.read(folder)


def test_corrupt_byte_is_found(folder):
    path = folder / "part-0" / "inner_indices.npy"
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    book = Book.read(folder)  # sizes are right
    with pytest.raises(InputError, match=r"part-0/inner_indices\.npy is corrupt"):
        book.verify_checksums()


def test_array_of_another_shape(folder):
    path = folder / "part-0" / "degree.npy"
    degree = np.load(path)
    np.save(path, degree.reshape(2, -1) if len(degree) % 2 == 0 else degree[None])
    book = json.loads((folder / "book.json").read_text())
    book["parts"][0]["files"]["degree.npy"]["bytes"] = path.stat().st_size
    (folder / "book.json").write_text(json.dumps(book))
    with pytest.raises(InputError, match=r"degree\.npy does not have"):
        Book.read(folder).part(0)


def test_pickled_array_is_refused(folder):
    path = folder / "part-0" / "y.npy"
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    book = json.loads((folder / "book.json").read_text())
    book["parts"][0]["files"]["y.npy"]["bytes"] = path.stat().st_size
    (folder / "book.json").write_text(json.dumps(book))
    with pytest.raises(InputError, match=r"y\.npy"):
        Book.read(folder).part(0)


def test_no_such_part(folder):
    with pytest.raises(InputError, match="0 to 2"):
        Book.read(folder).part(3)
