"""A damaged parts folder is refused with the file's name and the remedy."""

import json
import os
import resource
import shutil

import numpy as np
import pytest
from partition.graphs import communities

from isthmus.errors import InputError
from isthmus.files import sealed, sha256
from isthmus.partition import Book, partition
from isthmus.partition import book as book_module


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    out = tmp_path_factory.mktemp("book") / "parts"
    partition(communities(), 3, "random", out=out)
    return out


@pytest.fixture
def folder(original, tmp_path):
    return shutil.copytree(original, tmp_path / "parts")


def edit(folder, **changes):
    """Change the book as somebody would who knows the format: its seal fits again."""
    book = json.loads((folder / "book.json").read_text())
    del book["sha256"]
    (folder / "book.json").write_text(json.dumps(sealed({**book, **changes})))


def replace_array(folder, name, array, **how):
    """Write another array into part 0, and into the book what fits it."""
    path = folder / "part-0" / f"{name}.npy"
    np.save(path, array, **how)
    parts = json.loads((folder / "book.json").read_text())["parts"]
    parts[0]["files"][path.name] = {"bytes": path.stat().st_size, "sha256": sha256(path)}
    edit(folder, parts=parts)


def test_reads_what_was_written(folder):
    book = Book.read(folder)
    assert book.num_parts == 3
    content = {"format": "isthmus-parts", "version": 2, **json.loads(json.dumps(book.as_dict()))}
    assert json.loads((folder / "book.json").read_text()) == sealed(content)
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
    edit(folder, version=3)
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
    replace_array(folder, "degree", np.load(folder / "part-0" / "degree.npy")[None])
    with pytest.raises(InputError, match=r"degree\.npy does not have"):
        Book.read(folder).part(0)


def test_pickled_array_is_refused(folder):
    replace_array(folder, "y", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match=r"y\.npy.* is a pickled array, which could run code"):
        Book.read(folder).part(0)


def test_no_such_part(folder):
    with pytest.raises(InputError, match="0 to 2"):
        Book.read(folder).part(3)


def test_a_flipped_bit_in_the_book_is_found(folder):
    """Also where the figure that it makes would be believed, as the number of training nodes."""
    path = folder / "book.json"
    path.write_text(path.read_text().replace('"train": [\n  ', '"train": [\n  1', 1))
    with pytest.raises(InputError, match="has changed since it was written"):
        Book.read(folder)


def test_a_book_from_before_there_were_seals(folder):
    book = json.loads((folder / "book.json").read_text())
    del book["sha256"]
    (folder / "book.json").write_text(json.dumps(book))
    assert Book.read(folder).part(1).index == 1


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"features": ["touch", "MARK"]}, "features is a list, not a whole number"),
        ({"name": 7}, "name is 7, not text"),
        ({"nodes": True}, "nodes is True, not a whole number"),
        ({"ranges": [0, "1"]}, r"ranges\[1\] is '1', not a whole number"),
        ({"quality": {}}, r"quality\.cut_edges is not there"),
        ({"classes": 2**31 - 1}, "how many features and classes"),
        ({"train": [10**9]}, "its splits"),
        ({"edges": 3}, "how many nodes and edges"),
        ({"parts": []}, "which part owns which nodes"),
        ({"parts": 5}, "parts is 5, not a list"),
    ],
)
def test_fields_of_another_type_or_size(folder, changes, word):
    edit(folder, **changes)
    with pytest.raises(InputError, match=word):
        Book.read(folder)


def test_names_that_lead_elsewhere(folder):
    parts = json.loads((folder / "book.json").read_text())["parts"]
    for part in parts:
        part["files"]["../../elsewhere.npy"] = part["files"].pop("y.npy")
    edit(folder, parts=parts)
    with pytest.raises(InputError, match="which files a part has"):
        Book.read(folder)


@pytest.mark.parametrize(
    ("name", "place", "value", "word"),
    [
        ("inner_indices", 3, 10**6, "goes from 0 to"),
        ("halo_indices", -1, -1, "goes from 0 to"),
        ("send_rows", 0, 10**6, "goes from 0 to"),
        ("nodes", 0, -5, "goes from 0 to"),
        ("halo_nodes", 0, 10**9, "goes from 0 to"),
        ("inner_indptr", 4, 10**9, "does not ascend"),
        ("halo_indptr", -1, 1, "does not ascend"),
        ("halo_ptr", -1, 10**9, "does not ascend"),
        ("send_ptr", 1, -1, "does not ascend"),
        ("degree", 0, 10**6, "is not the number of edges"),
        ("halo_degree", 0, -1, "below 0"),
        ("y", 0, 99, "is no class"),
    ],
)
def test_indices_out_of_range_are_found_where_checksums_fit(folder, name, place, value, word):
    array = np.load(folder / "part-0" / f"{name}.npy")
    array[place] = value
    replace_array(folder, name, array)
    with pytest.raises(InputError, match=rf"part-0/{name}\.npy .*{word}"):
        Book.read(folder).part(0)


def test_links_whose_ends_disagree(folder):
    ptr = np.load(folder / "part-0" / "halo_ptr.npy")
    ptr[2] -= 1  # one row less from part 1, one more from part 2
    replace_array(folder, "halo_ptr", ptr)
    for part in range(3):
        with pytest.raises(InputError, match="has another number"):
            Book.read(folder).part(part)


@pytest.mark.parametrize("name", ["inner_indices", "nodes", "x", "send_rows"])
def test_every_part_that_is_loaded_is_compared_with_its_checksums(folder, name):
    """Nobody has to ask for it: `variance` and `plan` did not."""
    path = folder / "part-1" / f"{name}.npy"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    book = Book.read(folder)
    assert book.part(0).index == 0
    with pytest.raises(InputError, match=rf"part-1/{name}\.npy is corrupt"):
        book.part(1)


def test_a_file_is_read_for_its_checksum_once(folder, monkeypatch):
    read = []
    monkeypatch.setattr(book_module, "sha256", lambda path, remedy: read.append(path) or sha256(path, remedy))
    book = Book.read(folder)
    for _ in range(2):
        book.verify_checksums([0])
        book.part(0)
    assert len(read) == len(set(read))


def test_too_few_file_descriptors_name_the_remedy(folder):
    book = Book.read(folder)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 3, hard))
    try:
        with pytest.raises(InputError, match=r"files are open.*`ulimit -n \d+`"):
            kept = [book.part(k) for k in range(3)]  # noqa: F841 - every memory map keeps its file open
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_node_of_a_split_without_a_label(folder):
    y, train = (np.load(folder / "part-0" / f"{name}.npy") for name in ("y", "train_mask"))
    y[np.flatnonzero(train[:, 0])[0]] = -1
    replace_array(folder, "y", y)
    with pytest.raises(InputError, match=r"train_mask\.npy has a node without a label"):
        Book.read(folder).part(0)
