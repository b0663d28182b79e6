"""Whether this machine lets its user make testbeds; tests that need one are skipped where it does not."""

from __future__ import annotations

import pytest

from isthmus import testbed
from isthmus.errors import InputError


def _why_not() -> str:
    try:
        with testbed.Testbed(1, "1gbit"):
            return ""
    except (InputError, OSError) as error:
        return str(error)


WHY_NOT = _why_not()
needs_testbed = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "a testbed can be made")
