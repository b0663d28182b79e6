"""Read json from a file with bounded size; every error is one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from isthmus.errors import InputError
from isthmus.files.regular import open_regular, unreadable

DEEPEST = 50  # levels of nested brackets: our own files have six
MOST_BYTES = 256 << 20  # a book of 10,000 parts has 40 MB


def read_json(path: Path, remedy: str) -> Any:
    """Return the content of a json file."""
    with open_regular(path, remedy) as file:
        try:
            content = file.read(MOST_BYTES + 1)
        except OSError as error:
            raise unreadable(path, error, remedy) from None
    if len(content) > MOST_BYTES:
        raise InputError(f"{path} is larger than {MOST_BYTES >> 20} MiB, too large for such a file: {remedy}")
    return parse_json(content, str(path), remedy)


def parse_json(content: bytes, where: str, remedy: str, first_line: int = 1) -> Any:
    """Parse json; an error names the line, counted from ``first_line``."""
    try:
        found = json.loads(content.decode("utf-8", "replace"))
        if _depth(found) > DEEPEST:
            raise ValueError(f"brackets more than {DEEPEST} deep")
        return found
    except (ValueError, RecursionError) as error:  # RecursionError: brackets nested thousands deep
        reason, line = getattr(error, "msg", str(error)), first_line + getattr(error, "lineno", 1) - 1
        raise InputError(f"{where}, line {line}: damaged json ({reason}): {remedy}") from None


def _depth(content: Any) -> int:
    """Return how deep lists and objects are nested, up to one more than is allowed."""
    depth, level = 0, [content]
    while level and depth <= DEEPEST:
        level = [
            item
            for one in level
            if isinstance(one, list | dict)
            for item in (one.values() if isinstance(one, dict) else one)
            if isinstance(item, list | dict)
        ]
        depth += 1
    return depth
