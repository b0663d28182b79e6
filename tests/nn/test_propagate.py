"""What is exchanged of rows that were dropped out, where a reader uses them some steps later."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from graphs import community_graph, cut
from oracle.full_graph import propagation
from torch import Tensor

from isthmus import kernels
from isthmus.comm import Hub, Stages
from isthmus.local import LocalGraph, Policy, Savings
from isthmus.partition import Book

P, NODES, WIDTH, STEPS, SEED = 0.5, 120, 12, 4, 3
Layer = list[tuple[Tensor, Tensor, Tensor]]  # per step: result, gradient by x, gradient by W


def mask(step: int) -> Tensor:
    return kernels.dropout(torch.ones(NODES, WIDTH).double(), torch.arange(NODES), kernels.stream(SEED, step, 1), P)


def distributed(book: Book, policy: Policy, inputs: Layer, read: Tensor) -> tuple[Layer, int]:
    """relu, dropout and the rows ``read`` (bool [n]) of P X Wᵀ at each step, of x and W; and the gradients of its
    product with a third tensor."""
    outs: Layer = [(by * 0, x * 0, w * 0) for x, w, by in inputs]

    def work(transport):
        about = {"policy": policy, "dtype": torch.float64, "seed": SEED}
        graph = LocalGraph.from_part(book.part(transport.rank), transport, True, **about)
        only = None if read.all() else read[graph.nodes].nonzero().flatten()
        mine_read = graph.nodes if only is None else graph.nodes[only]
        weights = []
        for step, ((x, w, by), out) in enumerate(zip(inputs, outs, strict=True)):
            graph.runtime.begin(step)
            mine, weight = x[graph.nodes].requires_grad_(), w.clone().requires_grad_()
            got = graph.propagate(graph.dropout(mine, P, relu=True), weight, "mean", only)
            (got * by[mine_read]).sum().backward()
            out[0][mine_read], out[1][graph.nodes] = got.detach(), mine.grad
            weights.append(weight.grad)
        graph.runtime.drain()
        return weights, transport.ledger.kinds["embeddings"]

    results = Hub(book.num_parts).run(work)
    for step, out in enumerate(outs):
        out[2].add_(sum(weights[step] for weights, _ in results))
    return outs, sum(sent for _, sent in results)


def literally(book: Book, mean: Tensor, inputs: Layer, narrow: bool) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """The same in one process with staleness 1, by hand: H = relu(x), D = mask ∘ H, and of the halo, at step t,

    wide: mask_t ∘ H_{t−1}, times W_t; narrow: (mask_t ∘ H_{t−1}) W_{t−1}ᵀ. Step 0 is fresh. Readers send home the
    gradient of what they read; it is added a step later.
    """
    owner = np.empty(NODES, dtype=int)
    for r in range(book.num_parts):
        owner[book.part(r).nodes] = r
    inner = torch.from_numpy(owner[:, None] == owner[None, :])
    for t, (x, w, by) in enumerate(inputs):
        was = max(t - 1, 0)
        h, h_was = torch.relu(x), torch.relu(inputs[was][0])
        made_with = inputs[was][1] if narrow else w
        mine, theirs = (mean * inner) @ (h * mask(t)), (mean * ~inner) @ (h_was * mask(t))
        d = (mean * inner).t() @ by @ w * mask(t)
        # Home come gradients of step `was`, by what was read then.
        back = (mean * ~inner).t() @ inputs[was][2]
        d = d + (back @ w if narrow else back @ inputs[was][1]) * mask(was)
        of_w = by.t() @ mine + (back.t() @ (h * mask(was)) if narrow else by.t() @ theirs)
        yield mine @ w.t() + theirs @ made_with.t(), d * (x > 0), of_w


@pytest.mark.parametrize("share", [1.0, 0.7, 0.2])
@pytest.mark.parametrize(("outputs", "savings", "narrow"), [(5, True, True), (12, True, False), (5, False, False)])
def test_rows_are_read_with_the_mask_of_their_step(tmp_path, outputs, savings, narrow, share):
    """Narrowing layers of a pipeline send the narrow side, dropped out as readers would; others the rows before."""
    graph = community_graph()
    book = cut(graph, 3, "random", tmp_path)
    generator = torch.Generator().manual_seed(1)
    shapes = ((NODES, WIDTH), (outputs, WIDTH), (NODES, outputs))
    inputs: Layer = [
        tuple(torch.randn(*shape, dtype=torch.float64, generator=generator) for shape in shapes)  # type: ignore[misc]
        for _ in range(STEPS)
    ]
    flags, late = Savings(narrow_side=savings, aggregate_once=savings, overlap=savings), Stages(delay=1)
    read = torch.rand(NODES, generator=generator) < share
    inputs = [(x, w, by * read[:, None]) for x, w, by in inputs]
    got, sent = distributed(book, Policy(flags, late, late), inputs, read)
    mean = torch.from_numpy(propagation(graph, "sage"))
    for one, (result, *gradients) in zip(got, literally(book, mean, inputs, narrow), strict=True):
        torch.testing.assert_close(one, (result * read[:, None], *gradients))
    rows = sum(len(book.part(r).halo_nodes) for r in range(3))
    # A warm start sends narrow rows twice, since each of the first two steps has its own mask.
    assert sent == rows * ((STEPS + 1) * outputs if narrow else STEPS * WIDTH) * 8


def test_a_dropout_that_is_not_the_last_one(tmp_path):
    """Readers do it to rows of another step with their own step's mask, also after another dropout has been called."""
    book = cut(community_graph(NODES), 3, "metis", tmp_path)
    x = torch.randn(NODES, WIDTH, generator=torch.Generator().manual_seed(1)).double()

    def work(transport):
        about = {"policy": Policy(Savings(), Stages(delay=1), Stages(delay=1)), "dtype": torch.float64, "seed": SEED}
        graph = LocalGraph.from_part(book.part(transport.rank), transport, True, **about)
        apart = 0.0
        for step in range(STEPS):
            results = []
            for training in (True, False):  # rows never change: those of the last step are those of this one
                graph.runtime.begin(step)
                first = graph.dropout(x[graph.nodes], P)
                graph.dropout(first, P)
                graph.runtime.training = training
                results.append(graph.aggregate(first, "mean"))
            apart = max(apart, float((results[0] - results[1]).abs().max()))
        graph.runtime.drain()
        return apart

    assert max(Hub(3).run(work)) < 1e-12
