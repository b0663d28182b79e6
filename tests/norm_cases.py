"""The norms over all nodes that are shared between workers, of rows of six."""

from __future__ import annotations

import pytest
from torch import nn

pyg = pytest.importorskip("torch_geometric.nn", reason="PyG is not installed: pip install 'isthmus[pyg]'")

NORMS = {
    "torch": lambda: nn.BatchNorm1d(6),
    "cumulative": lambda: nn.BatchNorm1d(6, momentum=None),
    "without running statistics": lambda: nn.BatchNorm1d(6, track_running_stats=False, affine=False),
    "SyncBatchNorm": lambda: nn.SyncBatchNorm(6),
    "BatchNorm": lambda: pyg.BatchNorm(6),
    "single element": lambda: pyg.BatchNorm(6, allow_single_element=True),
    "LayerNorm": lambda: pyg.LayerNorm(6),
    "GraphNorm": lambda: pyg.GraphNorm(6),
    "PairNorm": lambda: pyg.PairNorm(),
    "PairNorm by row": lambda: pyg.PairNorm(scale_individually=True),
    "InstanceNorm": lambda: pyg.InstanceNorm(6, affine=True, track_running_stats=True),
    "GraphSizeNorm": lambda: pyg.GraphSizeNorm(),
    "MeanSubtractionNorm": lambda: pyg.MeanSubtractionNorm(),
    "DiffGroupNorm": lambda: pyg.DiffGroupNorm(6, 3),
}
