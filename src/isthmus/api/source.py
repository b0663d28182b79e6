"""The source of a graph: its name, and how it is cut if it is not yet."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from isthmus.errors import InputError
from isthmus.graph.load import FORMS
from isthmus.partition import Book, is_parts_folder, partition_source
from isthmus.partition.book import MAKE

Cut = Callable[[Path, int], None]  # (folder, parts): writes the parts folder


def name_of(source: Any) -> str:
    """Return the path or name of a source; for a graph in memory, a description that is no path."""
    if isinstance(source, Book):
        return str(source.folder)
    if isinstance(source, str | os.PathLike):
        return os.fspath(source)
    return f"the graph in memory ({type(source).__name__})"


def cutter(
    source: Any, method: str, objective: str | None, asked: str | None, undirected: bool, directed: bool, **how: Any
) -> Cut:
    """Return a function that cuts the source by the method asked for, else by `method`; refuse to cut parts again."""
    name = name_of(source)
    if (asked or undirected or directed) and is_parts_folder(name):
        raise InputError(f"{name} is already cut: give --method, --undirected and --directed to `isthmus partition`")
    way = {"method": asked} if asked else {"method": method, "objective": objective}

    def cut(folder: Path, parts: int) -> None:
        if isinstance(source, str | os.PathLike) and ":" not in name and not Path(name).exists():
            raise InputError(f"{name} does not exist: give a parts folder ({MAKE}), {FORMS}")
        partition_source(source, parts, folder, undirected=undirected, directed=directed, **way, **how)

    return cut
