"""Which graph a model sees when it trains, validates and tests."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from isthmus.comm import Transport
from isthmus.engine.config import DTYPES, ROWS_DTYPES, TrainConfig
from isthmus.engine.data import Data
from isthmus.local import FEW, LocalGraph, Policy, induced_graph
from isthmus.partition import Book, own_part


@dataclass(frozen=True)
class View:
    """A graph, the data of its nodes and how many classes they have, and the splits that are scored on it."""

    graph: LocalGraph
    data: Data
    classes: int
    scores: tuple[str, ...]


@dataclass(frozen=True)
class Views:
    """Transductive: one view for all. Inductive: training nodes; training and validation nodes; all nodes."""

    train: View
    scored: tuple[View, ...]

    @staticmethod
    def of(book: Book, config: TrainConfig, policy: Policy, transport: Transport, dense: bool = False) -> Views:
        """``dense``: feature rows as a plain tensor, also where they are kept sparse."""
        part = own_part(book, transport.rank, transport.size)
        graph = LocalGraph.from_part(
            part,
            transport,
            book.symmetric,
            policy=policy,
            dtype=DTYPES[config.dtype],
            rows_dtype=ROWS_DTYPES[config.rows_dtype] if config.rows_dtype else None,
            seed=config.seed,
        )
        data = Data.of(part, config, transport)
        if dense and not isinstance(data.x, torch.Tensor):
            data = Data(data.x.dense(), data.y, data.masks)
        if not config.inductive:
            whole = _view(graph, data, book.classes, ("train", "val", "test"))
            share = book.train[config.split] / book.nodes
            if share <= FEW:
                graph.reads_only(data.masks["train"].nonzero().flatten(), share)
            return Views(whole, (whole,))
        seen = data.masks["train"]
        train = _view(induced_graph(graph, seen), data.take(seen), book.classes, ("train",))
        seen = seen | data.masks["val"]
        val = _view(induced_graph(graph, seen), data.take(seen), book.classes, ("val",))
        return Views(train, (train, val, _view(graph, data, book.classes, ("test",))))


def _view(graph: LocalGraph, data: Data, classes: int, scores: tuple[str, ...]) -> View:
    if not isinstance(data.x, torch.Tensor) and not graph.keeps_sparse:
        data = Data(data.x.dense(), data.y, data.masks)
    graph.fix(data.x)
    return View(graph, data, classes, scores)
