"""Fixtures that every room uses."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def datasets() -> Path:
    """The folder of real graphs beside the repository; tests that need it are skipped where it is absent."""
    folder = Path(__file__).parents[2] / "shared" / "datasets"
    if not folder.is_dir():
        pytest.skip(f"no real graphs: {folder} is absent")
    return folder
