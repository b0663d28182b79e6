"""What is exchanged of rows that were dropped out, where a reader may use them some steps later."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from graphs import community_graph, cut
from oracle.full_graph import propagation
from torch import Tensor

from isthmus import kernels
from isthmus.comm import Hub, Stages
from isthmus.local import LocalGraph, Policy, Savings
from isthmus.nn.layers import propagate

P, WIDTH, SEED = 0.5, 12, 3
LATE = Stages(delay=1)  # its first step is warm: fresh rows, sent the way of later ones


def layer(book, policy: Policy, x: Tensor, weight: Tensor, by: Tensor) -> tuple[Tensor, Tensor, int]:
    """relu, dropout, P X Wᵀ at step 0; and the gradient by x of its product with `by`; rows in original order."""
    out, gradient = torch.zeros(len(x), len(weight), dtype=x.dtype), torch.zeros_like(x)

    def work(transport):
        graph = LocalGraph.from_part(
            book.part(transport.rank), transport, True, policy=policy, dtype=x.dtype, seed=SEED
        )
        graph.begin(0)
        mine = x[graph.nodes].clone().requires_grad_()
        got = propagate(graph, graph.dropout(mine, P, relu=True), weight, "mean")
        (got * by[graph.nodes]).sum().backward()
        graph.drain()
        out[graph.nodes], gradient[graph.nodes] = got.detach(), mine.grad
        return transport.ledger.kinds["embeddings"]

    return out, gradient, sum(Hub(book.num_parts).run(work))


@pytest.mark.parametrize(("outputs", "savings", "in_full"), [(5, True, True), (12, True, False), (5, False, False)])
def test_narrow_rows_are_sent_in_full(tmp_path, outputs, savings, in_full):
    """Narrowing layers of a pipeline send H Wᵀ, without dropout; others send H, and readers drop it out."""
    graph = community_graph()
    book = cut(graph, 3, "random", tmp_path)
    generator = torch.Generator().manual_seed(1)
    x, weight, by = (
        torch.randn(*shape, dtype=torch.float64, generator=generator)
        for shape in ((120, WIDTH), (outputs, WIDTH), (120, outputs))
    )
    owner = np.empty(120, dtype=int)
    for r in range(3):
        owner[book.part(r).nodes] = r
    inner = torch.from_numpy(owner[:, None] == owner[None, :])
    mean = torch.from_numpy(propagation(graph, "sage"))
    z = x.clone().requires_grad_()
    h = torch.relu(z)
    kept = kernels.dropout(torch.ones_like(x), torch.arange(120), kernels.stream(SEED, 0, 1), P)
    halo = h if in_full else h * kept
    want = ((mean * inner) @ (h * kept) + (mean * ~inner) @ halo) @ weight.t()
    (want * by).sum().backward()

    flags = Savings(narrow_side=savings, aggregate_once=savings, overlap=savings)
    got, gradient, sent = layer(book, Policy(flags, LATE, LATE), x, weight, by)
    torch.testing.assert_close(got, want.detach())
    torch.testing.assert_close(gradient, z.grad)
    rows = sum(len(book.part(r).halo_nodes) for r in range(3))
    assert sent == rows * (outputs if in_full else WIDTH) * 8
