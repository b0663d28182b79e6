"""Limit what a compressed file may unpack to, so that a small file cannot fill the memory."""

from __future__ import annotations

import os
import re
from pathlib import Path

from isthmus.errors import InputError

VARIABLE = "ISTHMUS_MAX_UNPACKED"
ALWAYS = 256 << 20  # bytes that any file may unpack to
TIMES = 200  # times its own size; tables of numbers reach 10, feature rows that are mostly zero 100
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def unpacked_limit(packed: int) -> int:
    """Return how many bytes a file of ``packed`` bytes may unpack to: $ISTHMUS_MAX_UNPACKED, or by its own size."""
    given = os.environ.get(VARIABLE)
    if given is None:
        return max(ALWAYS, TIMES * packed)
    found = re.fullmatch(r"(\d{1,15})\s*([kmgt]?)(i?b)?", given.strip().lower())
    if found is None:
        raise InputError(f"{VARIABLE} is {given!r}: give a number of bytes, such as 8000000000 or 8GiB")
    return int(found[1]) * UNITS[found[2]]


def check_unpacked(path: Path, packed: int, unpacked: int) -> None:
    """Refuse a file that unpacks to more than the limit."""
    limit = unpacked_limit(packed)
    if unpacked > limit:
        raise InputError(
            f"{path} has {packed:,} bytes and unpacks to more than {limit:,}: if that is meant, set {VARIABLE} to as "
            "many bytes as it may take, such as 64GiB, or give it uncompressed"
        )
