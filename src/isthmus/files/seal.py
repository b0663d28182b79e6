"""Store in a json file the digest of its own content, so that a flipped bit is detected."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from isthmus.errors import InputError

KEY = "sha256"


def sealed(content: dict[str, Any]) -> dict[str, Any]:
    """Return the content with a digest of all of it added."""
    return {**content, KEY: _digest(content)}


def check_seal(content: dict[str, Any], path: Path, remedy: str) -> None:
    """Refuse content that differs from what was sealed; files of older versions have no seal and pass."""
    if KEY in content and content[KEY] != _digest({key: value for key, value in content.items() if key != KEY}):
        raise InputError(f"{path} has changed since it was written (its sha256 differs): {remedy}")


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
