"""Predict and evaluate from drawn neighbours: a node's result is computed from some of its neighbours, not all."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from isthmus.device import on_host, to_device
from isthmus.engine.judge import Judge
from isthmus.engine.prepare import View
from isthmus.engine.record import over_workers
from isthmus.errors import InputError
from isthmus.minibatch import BatchConfig, BatchPolicy, Neighbourhoods, batch_maker
from isthmus.partition import Book

SIZE = 500  # nodes of a worker that are predicted at once


def neighbourhoods(model: nn.Module, view: View, book: Book, fanouts: tuple[int, ...], seed: int) -> Neighbourhoods:
    """Return the drawn neighbourhoods of all nodes of a view for a model; every worker calls it at the same time."""
    data = view.batch_data(model, view.x, torch.empty(0, dtype=torch.int64))
    transport = view.graph.runtime.transport
    maker = batch_maker(book, BatchConfig(SIZE, fanouts), BatchPolicy(), transport, data, seed)
    return Neighbourhoods(maker.expander, maker.rows)


@torch.no_grad()
def sampled_logits(model: nn.Module, view: View, drawn: Neighbourhoods, nodes: Tensor) -> Iterator[Tensor]:
    """Yield the logits of some of this worker's nodes (int64), ``SIZE`` of them at a time and in order, [≤ SIZE, C].

    What a node draws is a function of (seed, hop, node), so the result does not depend on the number of workers. All
    workers take as many turns as the one with most nodes needs, the others with no nodes at their end.
    """
    run = view.graph.runtime
    device, turns = run.transport.device, int(over_workers([-(-len(nodes) // SIZE)], run.transport).max())
    model.eval()
    for turn in range(turns):
        mine = nodes[turn * SIZE : (turn + 1) * SIZE]
        layers, x = drawn.of(mine, turn)
        run.begin(0, training=False, layers=[layer.to(device) for layer in layers])
        logits = model(view.graph, to_device(x, device))
        if len(logits) != len(mine):
            raise InputError(
                f"the model aggregates fewer than {len(layers)} times, as often as --fanout has numbers: give one "
                "number for each convolution"
            )
        yield logits
        run.begin(0, training=False)


def sampled_scores(model: nn.Module, view: View, drawn: Neighbourhoods, judge: Judge, step: int) -> dict[str, float]:
    """Return the score of every split, each node's result computed from its drawn neighbours."""
    data = view.data
    scored = torch.stack([data.masks[split] for split in view.scores]).any(0) | (judge.links is not None)
    logits = torch.cat(list(sampled_logits(model, view, drawn, on_host(scored).nonzero().flatten())))
    masks = {split: mask[scored] for split, mask in data.masks.items()}
    return judge.scores(logits, data.y[scored], masks, view.scores, (step, view.graph.runtime.transport))
