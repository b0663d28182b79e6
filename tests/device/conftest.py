"""The pretend accelerator, for every test of this folder."""

from __future__ import annotations

import pytest
import shadow


@pytest.fixture(autouse=True)
def accelerator():
    """torch has an accelerator, "shadow", and knows it as the one of this machine."""
    module = shadow.install()
    module.visible = True
    yield module
    module.visible = False
