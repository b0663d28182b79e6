"""Files that somebody else wrote: what is no ordinary file, no array or no json is one line."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from isthmus.errors import InputError, enough_memory
from isthmus.files import (
    check_unpacked,
    is_plain_name,
    map_array,
    open_regular,
    parse_json,
    read_array,
    read_json,
    unpacked_limit,
)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", "u1", "?", "f2", "U7", ">i4"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0,), (0, 4), (4, 0)])
def test_arrays_are_those_of_numpy(tmp_path, dtype, shape):
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    for name, one in (("c", array), ("f", np.asfortranarray(array))):
        path = tmp_path / f"{name}.npy"
        np.save(path, one)
        for found in (map_array(path, "mend it"), read_array(path.open("rb"), path.stat().st_size)):
            assert found.dtype == one.dtype
            assert found.shape == one.shape
            assert np.array_equal(found, one)


def header(text: bytes, data: bytes = b"\0" * 24, version: bytes = b"\x01\x00") -> bytes:
    return b"\x93NUMPY" + version + len(text).to_bytes(2, "little") + text + data


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "does not begin like"),
        (b"\x93NUMPY\x07\x00" + b"\0" * 90, "does not begin like"),
        (header(b"{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }")[:-9], "claims shape"),
        (header(b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }"), "claims shape"),
        (header(b"{'descr': '<f8', 'fortran_order': False, 'shape': (True,), }"), "header is damaged"),
        (header(b"{'descr': '<f8', 'fortran_order': False, 'shape': (-1,), }"), "header is damaged"),
        (header(b"{'descr': '<f8', 'fortran_order': False, 'shape': (1.5,), }"), "header is damaged"),
        (header(b"{'descr': '<f8', 'fortran_order': False, 'shape': (" + b"9" * 400 + b",), }"), "holds no plain"),
        (header(b"{'descr': '<q8', 'fortran_order': False, 'shape': (3,), }"), "is unknown"),
        (header(b"{'descr': 'f8,f4', 'fortran_order': False, 'shape': (2,), }"), "holds no plain array"),
        (header(b"{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (3,), }"), "header is damaged"),
        (header(b"{'descr': '|O', 'fortran_order': False, 'shape': (3,), }"), "pickled array, which could run code"),
        (header(b"(" * 5000), "header is damaged"),
        (header(b"{'descr': '<f8', 'fortran_order': False, 'shape': (" + b"9" * 5000 + b",), }"), "readable array"),
    ],
)
def test_damaged_arrays(tmp_path, content, word):
    path = tmp_path / "a.npy"
    path.write_bytes(content)
    with pytest.raises(InputError, match=word):
        map_array(path, "mend it")


def test_what_is_no_ordinary_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    for path in (tmp_path, tmp_path / "pipe", tmp_path / "link", Path("/dev/null")):
        with pytest.raises(InputError, match="is not an ordinary file"):
            open_regular(path)
    for path in (tmp_path / "nothing", Path("a\0b"), tmp_path / ("x" * 5000)):
        with pytest.raises(InputError, match="cannot be read"):
            open_regular(path)


@pytest.mark.parametrize(
    "text", [b"[" * 100_000, b'{"a":' * 100_000, b"[" * 60 + b"]" * 60, b"9" * 10_000, b"{", b"\xff"]
)
def test_damaged_json(tmp_path, text):
    with pytest.raises(InputError, match="line 1: damaged json"):
        parse_json(text, "file", "mend it")
    (tmp_path / "a.json").write_bytes(text)
    with pytest.raises(InputError, match=r"a\.json, line 1: damaged json"):
        read_json(tmp_path / "a.json", "mend it")


@pytest.mark.parametrize(
    ("name", "plain"),
    [("x.npy", True), ("..", False), (".", False), ("", False), ("../x", False), ("/x", False), ("a/b", False)],
)
def test_names_that_a_file_gives(name, plain):
    assert is_plain_name(name) is plain


def test_how_much_a_file_may_unpack_to(monkeypatch):
    assert unpacked_limit(10) == 256 << 20
    assert unpacked_limit(1 << 30) == 200 << 30
    with pytest.raises(InputError, match=r"a\.gz has 10 bytes and unpacks to more than .*set ISTHMUS_MAX_UNPACKED"):
        check_unpacked(Path("a.gz"), 10, 1 << 40)
    monkeypatch.setenv("ISTHMUS_MAX_UNPACKED", "2 TiB")
    check_unpacked(Path("a.gz"), 10, 1 << 40)
    monkeypatch.setenv("ISTHMUS_MAX_UNPACKED", "much")
    with pytest.raises(InputError, match="give a number of bytes"):
        unpacked_limit(10)


def test_out_of_memory_is_one_line():
    import torch

    for ask in (lambda: np.empty(1 << 60, np.uint8), lambda: torch.empty(1 << 55)):
        with pytest.raises(InputError, match="not enough memory for the test"), enough_memory("the test"):
            ask()
    with pytest.raises(RuntimeError, match="other"), enough_memory("the test"):
        raise RuntimeError("other")


def test_a_gzip_file_is_not_text(tmp_path):
    (tmp_path / "a.json").write_bytes(gzip.compress(b"{}"))
    with pytest.raises(InputError, match="damaged json"):
        read_json(tmp_path / "a.json", "mend it")
