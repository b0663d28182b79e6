"""Read numbers and words from CSV text, plain or gzipped, in blocks; report the line of a cell that is no number."""

from __future__ import annotations

import csv
import gzip
import io
import os
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from isthmus.errors import InputError
from isthmus.files import check_unpacked, open_regular

LINES = 1 << 17  # lines parsed at a time
LONGEST = 1 << 22  # characters allowed in the header line


def open_text(path: Path) -> IO[str]:
    """Open the file as text; unzip it if its name ends in .gz, up to the size that it may unpack to."""
    file: IO[bytes] = open_regular(path)
    if path.suffix == ".gz":
        unzipped = _Unzipped(path, os.fstat(file.fileno()).st_size, gzip.GzipFile(fileobj=file), file)
        file = io.BufferedReader(unzipped, 1 << 16)
    return io.TextIOWrapper(file, encoding="utf-8-sig")


class _Unzipped(io.RawIOBase):
    """A gzipped file that counts the bytes it has unpacked."""

    def __init__(self, path: Path, packed: int, content: gzip.GzipFile, file: IO[bytes]):
        self.path, self.packed, self.content, self.file, self.done = path, packed, content, file, 0

    def readable(self) -> bool:
        return True

    def readinto(self, room: Any) -> int:
        count = self.content.readinto(room)
        self.done += count
        check_unpacked(self.path, self.packed, self.done)
        return count

    def close(self) -> None:
        self.content.close()
        self.file.close()
        super().close()


def read_matrix(
    path: Path, dtype: type, columns: Sequence[int] | None = None, names: Sequence[str] = (), skip: int = 0
) -> np.ndarray:
    """Return the given columns (all if None) of every line after the first ``skip``, as one array [lines, columns]."""
    blocks = [_parse(path, lines, first, dtype, columns, names) for first, lines in _blocks(path, skip)]
    if len({block.shape[1] for block in blocks}) > 1:
        raise InputError(f"{path} has lines of different lengths: give every line the same number of cells")
    return np.concatenate(blocks) if blocks else np.empty((0, len(columns or ())), dtype)


def read_words(path: Path, column: int, skip: int = 0) -> np.ndarray:
    """Return one column as stripped text."""
    words: list[str] = []
    longest = 1
    for first, lines in _blocks(path, skip):
        try:
            for number, cells in enumerate(csv.reader(lines), first):
                if column >= len(cells):
                    raise InputError(
                        f"{path} line {number} has only {len(cells)} cells: give every line the same number"
                    )
                words.append(cells[column].strip())
        except csv.Error as error:
            raise InputError(f"{path} cannot be read near line {first:,} ({error}): check its quotes") from None
        longest = max(longest, *(len(word) for word in words[-len(lines) :]), 1)
        # Numpy allots every word the space of the longest one.
        check_unpacked(path, path.stat().st_size, 4 * longest * len(words))
    return np.array(words, dtype=str)


def read_header(path: Path) -> list[str]:
    """Return the names in the first line."""
    with open_text(path) as file:
        try:
            line = file.readline(LONGEST + 1)
            if len(line) > LONGEST:
                raise InputError(f"{path} has a first line of more than {LONGEST:,} characters: name the columns in it")
            return [name.strip() for name in next(csv.reader([line]), [])]
        except (EOFError, OSError, zlib.error):
            raise InputError(f"{path} is truncated or damaged in its first line: copy it again") from None
        except (UnicodeDecodeError, csv.Error):
            raise InputError(f"{path} is not readable text: write it again as UTF-8 CSV") from None


def _blocks(path: Path, skip: int) -> Iterator[tuple[int, list[str]]]:
    """Yield runs of lines, each with the number of its first line; drop empty lines at the end."""
    number = 1 + skip
    with open_text(path) as file:
        try:
            for _ in islice(file, skip):
                pass
            while lines := list(islice(file, LINES)):
                read = len(lines)
                while lines and not lines[-1].strip():
                    lines.pop()
                if lines:
                    yield number, lines
                number += read
        except UnicodeDecodeError:
            raise InputError(f"{path} is not UTF-8 text: write it again as CSV") from None
        except (EOFError, OSError, zlib.error):
            raise InputError(f"{path} is truncated or damaged near line {number:,}: copy it again") from None


def _parse(
    path: Path, lines: list[str], first: int, dtype: type, columns: Sequence[int] | None, names: Sequence[str]
) -> np.ndarray:
    # Numpy's integer parser looks characters up in an ASCII table and may crash on others.
    plain = [line if line.isascii() else line.encode("ascii", "replace").decode() for line in lines]
    try:
        block: np.ndarray = np.loadtxt(
            plain, dtype, delimiter=",", comments=None, quotechar='"', usecols=columns, ndmin=2
        )
        if len(block) == len(lines):
            return block
    except (ValueError, IndexError, OverflowError):
        pass
    try:
        raise InputError(_blame(path, lines, first, dtype, columns, names))
    except csv.Error as error:
        raise InputError(f"{path} cannot be read near line {first:,} ({error}): check its quotes") from None


def _blame(
    path: Path, lines: list[str], first: int, dtype: type, columns: Sequence[int] | None, names: Sequence[str]
) -> str:
    """Return a message that names the cell that could not be read."""
    width = len(next(csv.reader(lines[:1]))) if lines else 0
    kind = "a whole number" if np.dtype(dtype).kind in "iu" else "a number"
    for number, line in enumerate(lines, first):
        cells = next(csv.reader([line]), [])
        if len(cells) != width:
            return f"{path} line {number} has {len(cells)} cells instead of {width}: give every line the same number"
        for column in columns if columns is not None else range(width):
            if column >= width:  # the first line ends within quotes
                return f"{path} line {number} has only {width} cells: write every row in one line, with all cells"
            try:
                np.dtype(dtype).type(cells[column].strip())
            except (ValueError, OverflowError):
                name = f"column {names[column]!r}" if names else f"column {column + 1}"
                return f"{path} line {number}, {name}: {cells[column]!r} is not {kind}: correct it or drop the column"
    return f"{path} lines {first} to {first + len(lines) - 1} cannot be read as numbers: check quotes and separators"
