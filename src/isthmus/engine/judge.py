"""Score the rows that a model gives: by labels, by a linear probe of embeddings, or by how well they tell links."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus.comm import Transport, Where
from isthmus.device import on_host
from isthmus.errors import InputError
from isthmus.minibatch.requests import Requests
from isthmus.minibatch.rows import Rows
from isthmus.partition import Book, own_part, shares
from isthmus.shard.load import as_tensor
from isthmus.tasks.metrics import LINKS, PROBE, Own, default_metric, score
from isthmus.tasks.probe import probe
from isthmus.tasks.task import Task

HELD_OUT = {"val": 1, "test": 2}


@dataclass(frozen=True)
class HeldOutLinks:
    """Pairs of nodes by which embeddings are judged: held-out edges, and as many pairs that are none."""

    requests: Requests
    pairs: Tensor  # int64 [m, 4]: the two ends (book ids, the first of them mine), 1 for an edge, and its split

    @staticmethod
    def of(book: Book, transport: Transport) -> HeldOutLinks:
        """Return this worker's share of the pairs that its parts hold out; all workers call it at the same time."""
        part = own_part(book, transport.rank, transport.size)
        if part.held_out is None:
            raise InputError(
                f"{book.name} holds no edges out, and link-auc is scored on those: cut the graph with --hold-out 0.1"
            )
        ranges = [*(book.ranges[block.start] for block in shares(book, transport.size)), book.nodes]
        return HeldOutLinks(Requests(transport, torch.tensor(ranges)), as_tensor(part.held_out))

    def scores(self, z: Tensor, splits: tuple[str, ...], step: int) -> dict[str, float]:
        """Return the ROC AUC of z_u · z_v for the pairs of every split; z [n, H] are the rows of my nodes."""
        there = Rows(on_host(z).contiguous(), self.requests).pull(self.pairs[:, 1], step, "rows of held-out edges")
        here = on_host(z)[self.pairs[:, 0] - self.requests.first]
        margin, found = (here.double() * there.double()).sum(1), dict[str, float]()
        for split in splits:
            at = self.pairs[:, 3] == HELD_OUT.get(split, 0)
            logits = torch.stack([torch.zeros_like(margin), margin], dim=1)[at]
            where = Where(f"score of {split}", "reduce", step, "weights")
            found[split] = score("roc-auc", logits, self.pairs[at, 2], self.requests.transport, where)
        return found


@dataclass(frozen=True)
class Judge:
    """The score of a run: a metric of labels, or one of those that judge embeddings."""

    metric: str | Own
    task: Task
    links: HeldOutLinks | None = None

    def scores(
        self, rows: Tensor, y: Tensor, masks: Mapping[str, Tensor], splits: tuple[str, ...], at: tuple[int, Transport]
    ) -> dict[str, float]:
        """Return the score of every split over all workers' nodes.

        ``rows`` [n, C] are what the model gives for my nodes, ``y`` and ``masks`` theirs; ``at``: step and transport.
        """
        (step, transport), metric = at, self.metric
        if metric == LINKS:
            assert self.links is not None
            return self.links.scores(rows, splits, step)
        if metric == PROBE:
            rows, metric = probe(rows, y, masks["train"], self.task.width, transport, step), default_metric(self.task)
        scores = {}
        for split in splits:
            where = Where(f"score of {split}", "reduce", step, "weights")
            scores[split] = score(metric, rows[masks[split]], y[masks[split]], transport, where)
        return scores
