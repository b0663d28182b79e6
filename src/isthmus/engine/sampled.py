"""Predict from drawn neighbours: a node's result is computed from a few of its neighbours instead of all."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from isthmus.device import to_device
from isthmus.engine.prepare import View
from isthmus.engine.record import over_workers
from isthmus.errors import InputError
from isthmus.minibatch import BatchConfig, BatchPolicy, batch_maker
from isthmus.partition import Book

SIZE = 1000  # nodes of a worker that are predicted at once


@torch.no_grad()
def sampled_logits(model: nn.Module, view: View, book: Book, fanouts: tuple[int, ...], seed: int) -> Iterator[Tensor]:
    """Yield the logits of this worker's nodes, ``SIZE`` of them at a time and in their order, [≤ SIZE, C].

    What a node draws is a function of (seed, hop, node), so the result does not depend on the number of workers. All
    workers take as many turns as the largest part needs, the others with no nodes at their end.
    """
    run, data, size = view.graph.runtime, view.data, SIZE
    of_view = view.batch_data(model, view.x, torch.empty(0, dtype=torch.int64))
    make = batch_maker(book, BatchConfig(size, fanouts), BatchPolicy(), run.transport, of_view, seed)
    device = run.transport.device
    count = len(data.y)
    turns = int(over_workers([-(-count // size)], run.transport).max())
    model.eval()
    for turn in range(turns):
        mine = torch.arange(min(turn * size, count), min((turn + 1) * size, count))
        found = make.expander.expand(mine + make.rows.requests.first, 0)
        x = to_device(make.rows.pull(found.nodes, turn), device)
        run.begin(0, training=False, layers=[layer.to(device) for layer in found.layers])
        logits = model(view.graph, x)
        if len(logits) != len(mine):
            raise InputError(
                f"the model aggregates fewer than {len(fanouts)} times, as often as --fanout has numbers: give one "
                "number for each convolution"
            )
        yield logits
        run.begin(0, training=False)
