"""Fixtures of the tests of training."""

from __future__ import annotations

import pytest
from oracle.harness import cutter


@pytest.fixture(scope="session")
def parts(tmp_path_factory):
    """place → graph, book, links; each cut once."""
    return cutter(tmp_path_factory.mktemp("places"))
