"""Run a recipe and its literal algorithm from the same weights on the same parts: shared by all oracle tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from graphs import community_graph, cut
from oracle.full_graph import losses
from oracle.links import Links
from oracle.places import Place

from isthmus.comm import Hub
from isthmus.engine import TrainConfig, train
from isthmus.nn import ModelConfig

STEPS = int(os.environ.get("ISTHMUS_ORACLE_STEPS", 16))  # more in `make test-all`
SEED, LR = 2, 0.5


def cutter(folder: Path) -> Callable[[Place], tuple[Any, Any, Links]]:
    """Return a function from a place to its graph, book and links; each is cut once."""

    @cache
    def make(workers: int, classes: int, directed: bool):
        graph = community_graph(60, classes=classes, directed=directed)
        book = cut(graph, workers, "random", folder / f"{classes}-{directed}")
        return graph, book, Links(graph, book)

    return lambda place: make(place.workers, place.classes, place.directed)


def run(
    book, model: str, policy, steps: int = STEPS, dropout: float = 0.0, **changes: Any
) -> tuple[np.ndarray, dict[str, Any]]:
    """Return the loss of every step, and the summary; workers are threads. ``changes``: of the config."""
    shape = ModelConfig(model=model, layers=3, hidden=8, dropout=dropout)
    # Evaluations in between must leave the recipe's state alone.
    values = {"steps": steps, "eval_every": 11, "dtype": "float64", "optimizer": "sgd", "lr": LR, "seed": SEED}
    asked = TrainConfig(shape, **{**values, **changes})
    found = []

    def work(transport):
        watch = (lambda line: found.append(line["loss"])) if transport.rank == 0 else None
        return train(book, asked, transport, policy=policy, watch=watch)

    results = Hub(book.num_parts).run(work)
    assert len(found) == steps
    return np.array(found), results[0].summary


def first_weights(graph, model: str) -> list[np.ndarray]:
    """Return the weights with which `run` begins."""
    shape = ModelConfig(model=model, layers=3, hidden=8)
    built = shape.build(graph.num_features, graph.num_classes, SEED, torch.float64)
    return [parameter.detach().numpy() for parameter in built.parameters()]


def exact_losses(graph, model: str, steps: int = STEPS) -> np.ndarray:
    """Return the losses of full-graph training in one process."""
    return np.array(losses(graph, model, first_weights(graph, model), steps, LR))


def relative(got: np.ndarray, want: np.ndarray) -> float:
    """Return the largest relative difference of two rows of losses."""
    return float(np.abs(got / want - 1).max())
