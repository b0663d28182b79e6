"""Files of a run: written whole or not at all, and a clear word when they cannot be."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from isthmus.errors import InputError


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Says what to do when something cannot be written: the disk is full, say, or has become read-only."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(
            f"cannot write {path} ({reason}): make room or mend the permissions, then --resume goes on from the last "
            "checkpoint; or give another --out"
        ) from error


def write_whole(path: Path, text: str) -> None:
    """Replaces a file at once; if that fails, the old one stays."""
    building = path.with_name(f".{path.name}.{os.getpid()}")
    with writing(path):
        try:
            building.write_text(text)
            building.replace(path)
        except OSError:
            building.unlink(missing_ok=True)
            raise
