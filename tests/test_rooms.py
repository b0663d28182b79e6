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
    "shard",
    "sample",
    "features",
    "minibatch",
    "local",
    "nn",
    "tasks",
    "engine",
    "recipes",
    "testbed",
    "launch",
    "diagnose",
    "experiments",
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


def module_name(file: Path) -> str:
    parts = ("isthmus", *file.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts).removesuffix(".__init__")


def imported_modules(file: Path, known: set[str]) -> set[str]:
    """The modules that a file imports when it is itself imported or type-checked; imports in functions come later."""
    found: set[str] = set()
    pending: list[ast.stmt] = list(ast.parse(file.read_text()).body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If | ast.Try):  # also `if TYPE_CHECKING`
            pending += node.body + node.orelse
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("isthmus"):
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    me = module_name(file)
    return {name for name in found & known if name != me and not me.startswith(f"{name}.")}


def test_no_module_imports_itself_in_the_end():
    files = {module_name(file): file for file in SOURCE.rglob("*.py")}
    imports = {name: imported_modules(file, set(files)) for name, file in files.items()}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " imports ".join((*path[path.index(name) :], name))
        if name not in done:
            for other in imports[name]:
                visit(other, (*path, name))
            done.add(name)

    for name in imports:
        visit(name, ())
