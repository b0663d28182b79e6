"""A json file that holds the digest of its own content, so that a bit that flips in it is found."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from isthmus.errors import InputError

KEY = "sha256"


def sealed(content: dict[str, Any]) -> dict[str, Any]:
    """Return the content with the digest of all of it."""
    return {**content, KEY: _digest(content)}


def check_seal(content: dict[str, Any], path: Path, remedy: str) -> None:
    """Refuse content that is not what was sealed; files that were written before there were seals have none."""
    if KEY in content and content[KEY] != _digest({key: value for key, value in content.items() if key != KEY}):
        raise InputError(f"{path} is not as it was written (its sha256 is another): {remedy}")


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
