"""The rows that nodes had when they were last computed, kept by their owners, for control variates (VR-GCN)."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from isthmus.device import on_host, to_device
from isthmus.engine import checkpoint
from isthmus.engine.learnt import read_rows, save_rows
from isthmus.engine.prepare import View
from isthmus.errors import InputError
from isthmus.kernels import SparseMatrix
from isthmus.local.controlled import ControlledGraph, Controls
from isthmus.minibatch import Batch
from isthmus.minibatch.requests import Requests
from isthmus.minibatch.rows import Rows
from isthmus.nn import Model

_NORMS = {"gcn": "gcn", "sage": "mean"}
_NAME = "history"


class Histories:
    """One worker's histories: for every layer of hidden rows a row per own node, zero until it is first computed."""

    def __init__(self, model: nn.Module, view: View, ranges: Tensor):
        name = model.config.model if isinstance(model, Model) else type(model).__name__
        if name not in _NORMS:
            raise InputError(
                f"control variates correct sums of neighbours, which {name} does not take: use gcn or sage"
            )
        self.view, self.requests = view, Requests(view.graph.runtime.transport, ranges)
        x = view.x
        view.graph.runtime.begin(0, training=False)
        if not isinstance(x, Tensor | SparseMatrix):
            raise InputError("control variates need the features on the device: leave --features-on host out")
        rows = x.dense() if isinstance(x, SparseMatrix) else x
        self.aggregated = on_host(view.graph.aggregate(rows, _NORMS[name]))
        assert isinstance(model, Model)
        own, dtype = len(self.aggregated), self.aggregated.dtype
        widths = [model.config.hidden] * (len(model.convs) - 1)
        self.rows = [torch.zeros(own, width, dtype=dtype) for width in widths]

    @property
    def own(self) -> tuple[int, int]:
        return self.requests.own.start, self.requests.own.stop

    def begin(self, batch: Batch) -> ControlledGraph:
        """Return the graph of a step: fetch kept rows from their owners; every worker calls it at the same time."""
        device, step = self.view.graph.runtime.transport.device, batch.step
        kept = [
            to_device(Rows(rows, self.requests).pull(missed.nodes, step, f"history {site}"), device)
            for site, (rows, missed) in enumerate(zip(self.rows, batch.missed, strict=True), 1)
        ]
        first = on_host(batch.nodes[: batch.layers[0].num_inner]) - self.requests.first
        aggregated = to_device(self.aggregated[first], device)
        layers = [missed.layer for missed in batch.missed]
        return ControlledGraph(self.view.graph, Controls(batch.x, aggregated, layers, kept))

    def keep(self, controls: Controls, batch: Batch) -> None:
        """Keep the rows that a step has computed."""
        nodes = on_host(batch.nodes) - self.requests.first
        for rows, made in zip(self.rows, controls.made, strict=True):
            rows[nodes[: len(made)]] = on_host(made).to(rows.dtype)

    def save(self, run: Path, step: int) -> None:
        """Write this worker's share of a checkpoint."""
        save_rows(run, step, self.own, {_NAME: {str(site): rows for site, rows in enumerate(self.rows)}})

    def restore(self, run: Path, step: int) -> None:
        """Go on from a checkpoint, of any number of workers."""
        saved = read_rows(run, step, self.own)
        with checkpoint.fitting(checkpoint.folder_of(run, step)):
            for site, rows in enumerate(self.rows):
                rows.copy_(saved[_NAME][str(site)])
