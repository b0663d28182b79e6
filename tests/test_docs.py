"""The Python shown in the docs runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"


def test_your_own_model(tmp_path, monkeypatch, capsys):
    pytest.importorskip("torch_geometric", reason="PyG is not installed: pip install 'isthmus[pyg]'")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "models.md").read_text(), re.DOTALL)
    assert len(blocks) == 3
    exec("\n".join(blocks), {"__name__": "docs"})
    assert "accuracy" in capsys.readouterr().out
