"""Everything that is trained on the pretend device: a new recipe, cut, model or plane joins by a line here.

A *plan* trains a few steps on a transport and returns figures that must be those of the CPU. `on_device` runs it there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import shadow
import torch
from graphs import community_graph, cut, with_few

from isthmus import recipes
from isthmus.comm import Hub, Transport
from isthmus.engine import TrainConfig, train
from isthmus.nn import ModelConfig
from isthmus.partition import Book

STEPS, LIMIT = 5, 1e-10
RECIPES = tuple(recipes.RECIPES)
MODELS = ("gcn", "sage", "gat", "device.plans:pyg_sage")
WORKERS = (1, 2, 3)
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "coded rows": ("pipegcn", {"bits": 8}),
    "coded weights": ("exact", {"bits_weights": 8}),
    "differences": ("isthmus", {"auto": False, "bits": 4, "delta": True}),
    "error feedback": ("vanilla", {"bits": 4, "feedback": True, "rounding": "stochastic"}),
    "cached features": ("psc-gcn", {"least": 2, "cache": "inclusion", "cache_rows": 0.5}),
    "cached at random": ("psc-gcn", {"least": 2, "cache": "random", "cache_rows": 0.5}),
    "bf16": ("exact", {"precision": "bf16"}),
}
"""Options that lead elsewhere than a recipe's defaults: a recipe, and its options."""


def suited(recipe: str, model: str) -> str:
    """Return the model, or another one if the recipe is not for it."""
    return model if recipe != "vr-gcn" or model in ("gcn", "sage") else "sage"


@dataclass(frozen=True)
class Plan:
    """A few steps of training: a recipe and its options, a model, the data's form."""

    recipe: str
    model: str = "gcn"
    options: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    shape: dict[str, Any] = field(default_factory=dict)
    """Options of the model."""

    def of(self, book: Book) -> TrainConfig:
        own = {"hidden": 8, "input_dropout": 0.2 if self.model == "sage" else 0.0, **self.shape}
        shape = {} if ":" in self.model else own
        given = recipes.find(self.recipe).settings(self.options)
        about = {"dtype": "float64", "steps": STEPS, **self.config}
        return TrainConfig(model=ModelConfig(model=self.model, **shape), recipe=self.recipe, options=given, **about)

    def train(self, book: Book, transport: Transport) -> list[float]:
        """Return the loss of every step, then the scores."""
        config, lines = self.of(book), list[dict[str, Any]]()
        policy = recipes.find(self.recipe).policy(config.options)
        train(book, config, transport, policy=policy, watch=lines.append)
        return [*(line["loss"] for line in lines), *(lines[-1][split] for split in ("train", "val", "test"))]


def pyg_sage(features: int, classes: int) -> torch.nn.Module:
    """A model of PyG as it is."""
    from torch_geometric.nn import GraphSAGE

    return GraphSAGE(features, 8, num_layers=2, out_channels=classes)


def parts(folder: Path, workers: int, recipe: str = "exact", weighted: bool = False, **options: Any) -> Book:
    """Cut a small graph at random, or by vertices where the recipe asks for that."""
    graph = with_few(community_graph(nodes=60, **options))
    graph = replace(graph, edge_attr=abs(graph.edge_attr[:, 0]) if weighted else None)
    by_vertices = recipes.find(recipe).way.get("cut") == "vertex"
    return cut(graph, workers, "ebv", folder, cut="vertex") if by_vertices else cut(graph, workers, "random", folder)


def on_device(work: Callable[[Transport], Any], workers: int) -> list[Any]:
    """Run work(transport) on every worker, each with a pretend device of its own."""

    def there(transport: Transport) -> Any:
        with shadow.one_thread():
            transport.use(torch.device(shadow.NAME, transport.rank))
            return work(transport)

    return Hub(workers, timeout=30).run(there)


def on_host(work: Callable[[Transport], Any], workers: int) -> list[Any]:
    return Hub(workers, timeout=30).run(work)
