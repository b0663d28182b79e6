"""Read the nodes that predictions are asked for from a file, and turn their names into numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from isthmus.errors import InputError
from isthmus.files import map_array
from isthmus.graph.text import read_matrix, read_words
from isthmus.partition import Book


def read_nodes(path: Path, book: Book) -> np.ndarray:
    """Return the nodes in a file as numbers 0 … N − 1, int64 [L]; the file has the source's ids if the book does."""
    words = book.has_ids and book.ids(0).dtype.kind == "U"
    names = _read_array(path, words) if path.suffix == ".npy" else _read_text(path, words)
    if not len(names):
        raise InputError(f"{path} names no node: give at least one id, or leave --nodes out for all")
    if book.has_ids:
        nodes, there = _look_up(names, book), f"which is not an id of {book.name}"
    else:
        nodes = np.where((names >= 0) & (names < book.nodes), names, -1)
        there = f"but the nodes are 0 to {book.nodes - 1}"
    strange = np.flatnonzero(nodes < 0)
    if len(strange):
        where = f"{path}: number {strange[0] + 1} of the list is {names[strange[0]]}"
        raise InputError(f"{where}, {there}: correct it or leave it out")
    return nodes


def _read_array(path: Path, words: bool) -> np.ndarray:
    names = map_array(path, "give an .npy of ids, or a text file")
    if names.ndim != 1 or names.dtype.kind not in ("iuU" if words else "iu"):
        what = "ids" if words else "whole numbers"
        raise InputError(f"{path} holds {names.dtype} of shape {list(names.shape)}: give a list of {what}")
    return names.astype(str) if words else names


def _read_text(path: Path, words: bool) -> np.ndarray:
    if words:
        return read_words(path, 0)
    names = read_matrix(path, np.int64, names=["node"])
    if names.shape[1] > 1:
        raise InputError(f"{path} has {names.shape[1]} numbers in a line: give one id per line")
    return names.reshape(-1)


def _look_up(names: np.ndarray, book: Book) -> np.ndarray:
    """Return the numbers of nodes by the source's ids, -1 for unknown ones; reads one part at a time to save memory."""
    nodes = np.full(len(names), -1)
    for k in range(book.num_parts):
        ids = book.ids(k)
        order = np.argsort(ids)
        place = np.searchsorted(ids[order], names, "left")
        found = place < np.searchsorted(ids[order], names, "right")
        nodes[found] = book.array(k, "nodes.npy")[order[place[found]]]
    return nodes
