"""The speed of a link as people write it: 50mbit, 1gbit."""

from __future__ import annotations

import re

from isthmus.errors import InputError

UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
SLOWEST, FASTEST = 1e5, 1e11


def bits_per_second(text: str) -> float:
    """Return a written rate as a number: "300mbit" → 3e8."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?(kbit|mbit|gbit)(?:/s)?", text.strip().lower())
    if match is None:
        raise InputError(f"cannot read the link rate {text!r}: write it like 300mbit or 1gbit")
    rate = float(match[1]) * UNITS[match[2]]
    if not SLOWEST <= rate <= FASTEST:
        raise InputError(f"the link rate {text} is not between {written(SLOWEST)} and {written(FASTEST)}")
    return rate


def written(rate: float) -> str:
    """Return a rate as people write it: 3e8 → "300mbit"."""
    unit = next((unit for unit in ("gbit", "mbit") if rate >= UNITS[unit]), "kbit")
    return f"{rate / UNITS[unit]:.4g}{unit}"
