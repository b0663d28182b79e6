"""The rooms of src/isthmus, in the order in which data flows: each imports only those before it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import isthmus

ROOMS = [
    "files",
    "kernels",
    "graph",
    "partition",
    "comm",
    "sample",
    "cache",
    "local",
    "nn",
    "engine",
    "recipes",
    "testbed",
    "launch",
    "plan",
    "report",
    "api",
    "cli",
]
SOURCE = Path(isthmus.__file__).parent


def imported_rooms(file: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "isthmus":
            rooms |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("isthmus."):
            rooms.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            rooms |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("isthmus.")}
    return rooms & set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_those_before_it(room):
    files = list((SOURCE / room).rglob("*.py")) or [SOURCE / f"{room}.py"]
    allowed = set(ROOMS[: ROOMS.index(room) + 1])
    for file in files:
        assert imported_rooms(file) <= allowed, f"{file.relative_to(SOURCE)} imports a later room"


def test_every_room_is_listed():
    folders = {path.name for path in SOURCE.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    assert folders == set(ROOMS)
