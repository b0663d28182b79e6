"""The graphs of a panel: those of a folder, and one that was named beside it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from isthmus.errors import InputError
from isthmus.partition import is_parts_folder
from isthmus.recipes.parse import Entry

BASE = "exact"


def sources(folder: Path, beside: str | None = None) -> dict[str, str]:
    """Return the sources of a panel by the name of their folder: .npz files and parts, and the one ``beside``."""
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder: give --panel one with .npz files or parts")
    found = [path for path in sorted(folder.iterdir()) if path.suffix == ".npz" or is_parts_folder(path)]
    if not found and beside is None:
        raise InputError(f"{folder} has no graph: put .npz files or parts there")
    named = {path.stem if path.suffix == ".npz" else path.name: str(path) for path in found}
    if beside is not None:
        named[re.sub(r"[^\w.=+-]+", "-", beside)] = beside
    return named


def check(entries: Sequence[Entry]) -> None:
    """Refuse recipes without the one that the others are measured from."""
    if not any(entry.label == BASE for entry in entries):
        raise InputError(f'a panel measures from {BASE}: write --recipes "{BASE}, …"')
