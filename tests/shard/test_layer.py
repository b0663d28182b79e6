"""A layer of a mini-batch, drawn by hand: five rows are read, the first two of them are computed."""

from __future__ import annotations

import pytest
import torch

from isthmus.kernels import Csr
from isthmus.local.product import inner_product
from isthmus.shard import Layer, Nodes, Pattern

#          drawn: 0 ← 2, 3 (of four neighbours); 1 ← 0, 4, 4 (an edge twice, of three)
EDGES = Csr(torch.tensor([0, 2, 5]), torch.tensor([2, 3, 0, 4, 4], dtype=torch.int32), 5)
DEGREE = torch.tensor([4, 3, 7, 1, 0])
NODES = Nodes(torch.arange(5), torch.empty(0, dtype=torch.int64), DEGREE, DEGREE[:0])
SCALE = torch.tensor([2.0, 1.0], dtype=torch.float64)
DRAWN = torch.tensor([[0, 0, 1, 1, 0], [1, 0, 0, 0, 2]], dtype=torch.float64) * SCALE[:, None]


def dense(norm):
    """The aggregation of the whole graph, with the drawn edges in place of all, each counted for those left out."""
    if norm == "sum":
        return DRAWN
    if norm == "mean":
        return DRAWN / DEGREE[:2, None]
    root = (DEGREE + 1.0).double().rsqrt()
    return (DRAWN + torch.eye(2, 5, dtype=torch.float64)) * root[:2, None] * root[None]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("norm", ["gcn", "mean", "sum"])
def test_a_layer_computes_its_targets_and_their_gradients(norm, weighted):
    weight = SCALE[EDGES.edge_rows] if weighted else None
    layer = Layer(Pattern(EDGES, weight), NODES, None if weighted else SCALE)
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    out = inner_product(x, layer, layer.norm(norm, torch.float64), lambda rows: rows)
    torch.testing.assert_close(out, dense(norm) @ x)
    grad = torch.randn(2, 3, dtype=torch.float64)
    out.backward(grad)
    torch.testing.assert_close(x.grad, dense(norm).T @ grad)


def test_attention_sees_its_own_row_and_those_drawn():
    layer = Layer(Pattern(EDGES), NODES, SCALE)
    pattern, _ = layer.attention_pattern
    assert [pattern.indices[a:b].tolist() for a, b in zip(pattern.indptr, pattern.indptr[1:], strict=False)] == [
        [0, 2, 3],
        [1, 0, 4, 4],
    ]
    assert layer.edge_index.tolist() == [[2, 3, 0, 4, 4], [0, 0, 1, 1, 1]]
