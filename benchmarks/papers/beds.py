"""The graphs and models that tables are measured on, in three sizes."""

from __future__ import annotations

from dataclasses import dataclass

from isthmus.engine import TrainConfig
from isthmus.nn import ModelConfig

WORKERS = 4


@dataclass(frozen=True)
class Bed:
    """A synthetic graph, and a SAGE of the published depth with layer norm, as the papers' programs have it. Its width
    is one that two cores compute in a tenth of a second."""

    graph: str
    scales: tuple[float, float, float]  # one for each size
    layers: int
    hidden: int
    dropout: float
    published: str  # the papers' model

    def source(self, size: Size) -> str:
        return f"synthetic:{self.graph}@{self.scales[size.place]:g}"

    def config(self, steps: int, eval_every: int) -> TrainConfig:
        shape = ModelConfig("sage", self.layers, self.hidden, dropout=self.dropout, layer_norm=True)
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
        Bed("reddit", (0.01, 0.02, 0.1), 4, 128, 0.5, "4 × 256"),
        Bed("products", (0.002, 0.005, 0.05), 3, 128, 0.3, "3 × 128"),
        Bed("yelp", (0.004, 0.008, 0.05), 4, 128, 0.1, "4 × 512"),
        Bed("flickr", (0.02, 0.06, 0.5), 3, 64, 0.5, "not stated"),
        Bed("amazon", (0.001, 0.003, 0.03), 3, 64, 0.5, "not stated"),
    )
}
