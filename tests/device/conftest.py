"""The pretend accelerator, for every test of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest
import shadow

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    """Skip these tests in a run that has others: autograd knows the devices that were there at its first backward."""
    alone = pytest.mark.skip(
        reason="the pretend accelerator needs a process of its own: pytest tests/device (make test does)"
    )
    mine = [item for item in items if HERE in item.path.parents]
    for item in mine if len(mine) < len(items) else ():
        item.add_marker(alone)


@pytest.fixture(autouse=True)
def accelerator():
    """torch has an accelerator, "shadow", and knows it as the one of this machine."""
    module = shadow.install()
    module.visible = True
    yield module
    module.visible = False
