"""The graphs and models that tables are measured on, in three sizes."""

from __future__ import annotations

from dataclasses import dataclass

from isthmus.engine import TrainConfig
from isthmus.nn import ModelConfig

WORKERS = 4


@dataclass(frozen=True)
class Bed:
    """A synthetic graph, and a model on it that two cores compute in a tenth of a second."""

    graph: str
    scales: tuple[float, float, float]  # one for each size
    steps: tuple[int, int, int]  # until `exact` and the pipelines have learnt what they will: the fewer nodes, the more
    layers: int
    hidden: int
    dropout: float
    published: str  # the papers' model
    model: str = "sage"
    hosts: int = WORKERS
    linked_steps: int | None = None  # where the first steps of a training are not like the others; None: the size's

    @property
    def name(self) -> str:
        return self.graph if self.hosts == WORKERS else f"{self.graph} on {self.hosts} hosts"

    def source(self, size: Size) -> str:
        return f"synthetic:{self.graph}@{self.scales[size.place]:g}"

    def learning_steps(self, size: Size) -> int:
        return self.steps[size.place]

    def steps_over_links(self, size: Size) -> int:
        return size.linked_steps if size.name == "quick" else self.linked_steps or size.linked_steps

    def config(self, steps: int, eval_every: int) -> TrainConfig:
        shape = ModelConfig(self.model, self.layers, self.hidden, dropout=self.dropout)
        return TrainConfig(shape, steps=steps, eval_every=eval_every, lr=0.01)


@dataclass(frozen=True)
class Size:
    """How long a measurement may take."""

    name: str
    place: int  # in `Bed.scales` and `Bed.steps`
    linked_steps: int
    """On narrow links. The first is not counted; the others are a multiple of the periods 2, 3 and 4 of SANCUS."""
    eval_every: int
    graphs: tuple[str, ...] | None = None  # None: those of each table


SIZES = {
    size.name: size
    for size in (
        Size("quick", 0, 5, 4, ("reddit", "reddit on 2 hosts")),
        Size("minutes", 1, 13, 4),
        Size("large", 2, 13, 4),
    )
}
BEDS = {
    bed.name: bed
    for bed in (
        Bed("reddit", (0.01, 0.025, 0.1), (8, 160, 80), 3, 128, 0.5, "4 × 256"),
        Bed("products", (0.002, 0.005, 0.05), (8, 60, 80), 3, 128, 0.3, "3 × 128"),
        Bed("yelp", (0.004, 0.01, 0.05), (8, 60, 80), 2, 256, 0.1, "4 × 512"),
        Bed("flickr", (0.02, 0.06, 0.5), (8, 60, 80), 2, 64, 0.5, "not stated"),
        Bed("amazon", (0.001, 0.003, 0.03), (8, 60, 80), 2, 64, 0.1, "not stated"),
        Bed("reddit", (0.01, 0.025, 0.1), (8, 200, 200), 2, 64, 0.0, "GCN 2 × 64", "gcn", 2, 41),
        Bed("products", (0.002, 0.02, 0.05), (8, 100, 200), 2, 64, 0.0, "GCN 2 × 64", "gcn", 2, 41),
    )
}
