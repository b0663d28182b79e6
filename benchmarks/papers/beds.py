"""The graphs and models that tables are measured on, in three sizes."""

from __future__ import annotations

from dataclasses import dataclass

from isthmus.engine import TrainConfig
from isthmus.nn import ModelConfig

WORKERS = 4


@dataclass(frozen=True)
class Bed:
    """A synthetic graph, and a SAGE on it that two cores compute in a tenth of a second and that learns in 60 steps."""

    graph: str
    scales: tuple[float, float, float]  # one for each size
    layers: int
    hidden: int
    dropout: float
    published: str  # the papers' model

    def source(self, size: Size) -> str:
        return f"synthetic:{self.graph}@{self.scales[size.place]:g}"

    def config(self, steps: int, eval_every: int) -> TrainConfig:
        shape = ModelConfig("sage", self.layers, self.hidden, dropout=self.dropout)
        return TrainConfig(shape, steps=steps, eval_every=eval_every, lr=0.01)


@dataclass(frozen=True)
class Size:
    """How long a measurement may take."""

    name: str
    place: int  # in `Bed.scales`
    linked_steps: int
    """On narrow links. The first is not counted; the others are a multiple of the periods 2, 3 and 4 of SANCUS."""
    learning_steps: int
    eval_every: int
    graphs: tuple[str, ...] | None = None  # None: those of each table


SIZES = {
    size.name: size
    for size in (
        Size("quick", 0, 5, 8, 4, ("reddit",)),
        Size("minutes", 1, 13, 60, 4),
        Size("large", 2, 13, 80, 4),
    )
}
BEDS = {
    bed.graph: bed
    for bed in (
        Bed("reddit", (0.01, 0.025, 0.1), 3, 128, 0.5, "4 × 256"),
        Bed("products", (0.002, 0.005, 0.05), 3, 128, 0.3, "3 × 128"),
        Bed("yelp", (0.004, 0.01, 0.05), 2, 256, 0.1, "4 × 512"),
        Bed("flickr", (0.02, 0.06, 0.5), 2, 64, 0.5, "not stated"),
        Bed("amazon", (0.001, 0.003, 0.03), 2, 64, 0.1, "not stated"),
    )
}
