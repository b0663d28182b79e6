"""Write quantities as people read them."""

from __future__ import annotations


def size_text(count: float) -> str:
    """Return a number of bytes in words: 936 B, 17.4 KiB, 2.1 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
