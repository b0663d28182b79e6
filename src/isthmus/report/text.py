"""Values as text on the page: readable for people, and harmless in a browser."""

from __future__ import annotations

import html
import math
from typing import Any

from isthmus.units import size_text

NONE = "–"


def escape(value: Any) -> str:
    """Return text for HTML, inside an element or a quoted attribute."""
    return html.escape(str(value), quote=True)


def number(value: Any) -> float | None:
    """Return a value of a json file as a finite number; None if it is anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        value = float(value)
    except OverflowError:  # an integer of hundreds of digits
        return None
    return value if math.isfinite(value) and abs(value) < 1e300 else None  # so that differences stay finite


def count(value: float | None) -> str:
    return NONE if value is None else f"{value:,.0f}"


def score(value: float | None) -> str:
    return NONE if value is None else f"{value:.4f}"


def share(value: float | None) -> str:
    return NONE if value is None else f"{100 * value:.1f} %"


def size(value: float | None) -> str:
    return NONE if value is None else size_text(value)


def duration(seconds: float | None) -> str:
    """Return seconds with three digits: 850 µs, 16.6 ms, 1.43 s, 12.5 min, 3.2 h."""
    if seconds is None:
        return NONE
    if seconds == 0:
        return "0 s"
    for limit, factor, unit in ((1e-3, 1e6, "µs"), (1, 1e3, "ms"), (120, 1, "s"), (7200, 1 / 60, "min")):
        if abs(seconds) < limit:
            return f"{_three_digits(seconds * factor)} {unit}"
    return f"{seconds / 3600:,.1f} h"


def _three_digits(value: float) -> str:
    return f"{value:.{max(0, 2 - math.floor(math.log10(max(abs(value), 1))))}f}"


def plain(value: Any) -> str:
    """Return a number of unknown kind, with as many digits as it takes to tell it from its neighbours."""
    value = number(value)
    if value is None:
        return NONE
    return f"{value:,.0f}" if value == round(value) and abs(value) < 1e9 else f"{value:.5g}"
