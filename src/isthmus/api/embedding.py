"""Learnt rows of nodes in a loop of one's own: `worker.embedding`."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from isthmus.device import on_host, to_device
from isthmus.engine.checkpoint import fitting
from isthmus.engine.learnt import read_rows, save_rows
from isthmus.features.embedding import Embedding
from isthmus.features.store import Store


class NodeEmbedding:
    """Learnt rows of all nodes, [N, width], each kept and updated by the worker that owns its node.

    Called with nodes (original ids, as ``batch.n_id``) it gives their rows, which gradients reach. `worker.step`
    updates them with the weights; a loop that does without it calls `step`, on every worker, after ``loss.backward()``.
    """

    def __init__(self, name: str, store: Store, table: Embedding, device: torch.device):
        self.name, self.store, self.table, self.device = name, store, table, device
        store.add(name, table)
        self._read: list[tuple[Tensor, Tensor]] = []  # book ids, and their rows

    @property
    def width(self) -> int:
        return self.table.width

    def __call__(self, nodes: Tensor) -> Tensor:
        """Return the rows of nodes (int64 [m], original ids, maybe repeated), [m, width]."""
        ids = self.store.server.by_id[on_host(nodes)]
        rows = to_device(self.store.pull(self.name, ids, self.table.step).wait(), self.device)
        if torch.is_grad_enabled():
            self._read.append((ids, rows.requires_grad_()))
        return rows

    def step(self, scale: float = 1.0) -> None:
        """Update the rows that were read since the last step by the sum of all workers' gradients times ``scale``.

        After `DistributedDataParallel`, which takes the mean over the workers, ``scale`` is 1 / their number. Every
        worker calls it at every step, also one that has read nothing. It returns when all have.
        """
        step, read, self._read = self.table.step, self._read, []
        ids = torch.cat([torch.empty(0, dtype=torch.int64), *(ids for ids, _ in read)])
        none = self.table.rows.new_empty(0, self.width)
        found = [torch.zeros_like(rows) if rows.grad is None else rows.grad for _, rows in read]
        gradients = torch.cat([none, *(on_host(one).to(none.dtype) for one in found)])
        self.store.push(self.name, ids, gradients * scale, step).wait()
        self.table.wait_for(step + 1, self.store.timeout)


class Embeddings(dict[str, NodeEmbedding]):
    """The learnt rows of a worker, by name; ``own``: the book ids of its nodes, from the first to before the last."""

    def __init__(self, own: tuple[int, int]):
        super().__init__()
        self.own = own

    def step(self) -> None:
        for embedding in self.values():
            embedding.step()

    def save(self, run: Path, step: int) -> None:
        """Write this worker's shards before the checkpoint of a step is published."""
        save_rows(run, step, self.own, {name: one.table.state_dict() for name, one in self.items()})

    def restore(self, run: Path, step: int) -> None:
        """Take the rows of a checkpoint, of any number of workers."""
        saved = read_rows(run, step, self.own)
        for name, one in self.items():
            with fitting(run):
                one.table.load_state_dict(saved[name], step)
