"""The source of a graph: its name, and how it is cut if it is not yet."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from isthmus.errors import InputError
from isthmus.graph.load import FORMS
from isthmus.graph.options import LoadOptions
from isthmus.options import options_of
from isthmus.partition import METHODS, Book, is_parts_folder, partition_source
from isthmus.partition.book import MAKE
from isthmus.partition.vertex import VERTEX_METHODS

Cut = Callable[[Path, int], None]  # (folder, parts): writes the parts folder


def name_of(source: Any) -> str:
    """Return the path or name of a source; for a graph in memory, a description that is no path."""
    if isinstance(source, Book):
        return str(source.folder)
    if isinstance(source, str | os.PathLike):
        return os.fspath(source)
    return f"the graph in memory ({type(source).__name__})"


def cutter(source: Any, own: Mapping[str, Any], asked: Mapping[str, Any], **how: Any) -> Cut:
    """Return a function that cuts the source as it was asked for, else in the ``own`` way of the recipe or command.

    ``asked`` are options: method, those of reading a graph and, where there is one, cut. To cut parts again is refused.
    """
    name, reading = name_of(source), {one.name: asked[one.name] for one in options_of(LoadOptions)}
    given = ["--method"] if asked["method"] else []
    given += [one.flag for one in options_of(LoadOptions) if reading[one.name] != one.default]
    if given and is_parts_folder(name):
        raise InputError(f"{name} is already cut: give {' and '.join(given)} to `isthmus partition`")
    way = {**_way(own, asked["method"], asked.get("cut")), **reading}

    def cut(folder: Path, parts: int) -> None:
        if isinstance(source, str | os.PathLike) and ":" not in name and not Path(name).exists():
            raise InputError(f"{name} does not exist: give a parts folder ({MAKE}), {FORMS}")
        partition_source(source, parts, folder, **way, **how)

    return cut


def _way(own: Mapping[str, Any], method: str | None, cut: str | None) -> dict[str, Any]:
    """Return method, objective and cut: what was asked for, and of the recipe's own way what goes with it."""
    if method is None and cut is None:
        return dict(own)
    if cut is None:
        cut = own.get("cut", "edge")
        known = VERTEX_METHODS if cut == "vertex" else METHODS
        if method not in known:
            cut = "vertex" if method in VERTEX_METHODS else "edge"
    if method is None and (cut == "vertex") == (own.get("cut") == "vertex"):
        return {**own, "cut": cut}
    return {"method": method, "cut": cut}
