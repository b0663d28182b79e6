"""Options of recipes as people write them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from isthmus.errors import InputError


def given(pairs: Iterable[str]) -> dict[str, Any]:
    """``name=value`` pairs; values are read as json where they can be, else as text."""
    options: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InputError(f"{pair!r} has no value: write the options of a recipe as name=value")
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    return options
