"""The policy of mini-batches: everything that a recipe decides about how they are drawn, dealt out and fed."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from isthmus.comm import AsIs, Codec
from isthmus.errors import InputError
from isthmus.features.embedding import EmbeddingConfig
from isthmus.minibatch.cache import CacheConfig
from isthmus.minibatch.pairs import PairPolicy
from isthmus.minibatch.scheduler import Scheduler, make_scheduler
from isthmus.minibatch.seeds import SHARES
from isthmus.sample import JointSampler, NeighbourSampler

WAYS = ("apart", "together")
STRUCTURES = ("here", "owner")
ROWS = ("host", "here", "owner")


@dataclass(frozen=True)
class DagPolicy:
    """The rules by which batches are made as DAGs of tasks on a pool of threads (ByteGNN)."""

    scheduler: str = "two-level"
    """When DAGs are launched, and the order of tasks (`SCHEDULERS`)."""
    sigma: float = 450.0
    """The launch score from which on another DAG is launched."""
    threads: int = 0
    """Threads of the pool; 0: as many as torch uses."""
    chunk: int = 0
    """Vertices that are drawn, or whose rows are read, by one task; 0: as the number of threads makes it worth."""
    queue_mb: float = 1024.0
    """Memory of batches that wait for training, in MB, above which none is launched."""
    operators: str = "usual"
    """The operators: the usual ones, or a subclass of `Operators` as package.module:NAME."""

    @property
    def made_scheduler(self) -> Scheduler:
        return make_scheduler(self.scheduler, self.sigma)

    def __post_init__(self) -> None:
        make_scheduler(self.scheduler, self.sigma)  # refuse what it refuses
        if self.threads < 0 or self.chunk < 0 or self.queue_mb <= 0:
            raise InputError(
                "threads and chunk must be at least 0 and queue_mb above 0, "
                f"not {self.threads}, {self.chunk}, {self.queue_mb:g}"
            )


@dataclass(frozen=True)
class BatchPolicy:
    """The rules by which a step's seed nodes become a batch on every worker."""

    draw: str = "uniform"
    """How neighbours are drawn: uniform, weighted or labor (`NeighbourSampler`)."""
    replace: bool = False
    share: str = "owner"
    """Which worker takes which seed node (`SHARES`)."""
    ahead: int = 2
    """Batches that a thread makes ahead of the step that trains; 0: each when it is needed."""
    rows: Codec = field(default_factory=AsIs)
    """The code of feature rows on the wire."""
    cache: CacheConfig = field(default_factory=CacheConfig)
    """The feature rows of other workers that a worker keeps."""
    seed: int | None = None
    """The seed of all draws; None is the seed of the run."""
    dag: DagPolicy | None = None
    """How batches are made as DAGs of tasks; None: one after another, by a thread."""
    embedding: EmbeddingConfig | None = None
    """The rows that nodes learn in a graph without features."""
    joint: JointSampler | None = None
    """How all workers draw one batch; None: each draws neighbours of its seed nodes."""
    history: bool = False
    """Whether owners keep the rows of earlier steps, which stand in for neighbours that a joint draw misses."""
    size: int = 1000
    """Seed nodes of a step, unless the user says otherwise."""
    fanouts: tuple[int, ...] = (15, 10, 5)
    """Neighbours that are drawn at every hop, the last of them at all further ones, unless the user says otherwise."""

    def __post_init__(self) -> None:
        if self.dag is not None and self.cache.looks_ahead:
            raise InputError("cache=list looks at steps whose batches are not begun: use vip or degree")
        if self.share not in SHARES:
            raise InputError(f"unknown share {self.share!r}: use one of {', '.join(SHARES)}")
        if self.ahead < 0:
            raise InputError(f"ahead must be at least 0, not {self.ahead}")
        NeighbourSampler((1,), self.draw, self.replace)  # refuse what it refuses

    def usual_fanouts(self, layers: int) -> tuple[int, ...]:
        """Return the fanouts of a model with so many layers."""
        return (*self.fanouts, *self.fanouts[-1:] * layers)[:layers]

    def steps_per_epoch(self, nodes: int, labelled: int, size: int | None) -> int:
        """Return the steps of an epoch on a graph with so many nodes, some of them labelled; ``size``: as asked for."""
        size = size or self.size
        return -(-labelled // size) if self.joint is None else self.joint.steps_per_epoch(nodes, labelled, size)

    def sampler(self, fanouts: tuple[int, ...], seed: int) -> NeighbourSampler:
        """Return the sampler of neighbours for a run with that seed."""
        return NeighbourSampler(fanouts, self.draw, self.replace, seed if self.seed is None else self.seed)


def read_fanouts(text: str) -> tuple[int, ...]:
    """Return fanouts written as "15,10,5"."""
    if not re.fullmatch(r"(-1|[0-9]{1,9})(,(-1|[0-9]{1,9}))*", text):
        raise InputError(f"fanout is one number per layer, at least 0 or -1 (all), as 15,10,5: not {text!r}")
    return tuple(int(number) for number in text.split(","))


@dataclass(frozen=True)
class BatchConfig:
    """The options of a run by mini-batches that users give beside the recipe."""

    size: int
    """Seed nodes of a step, over all workers."""
    fanouts: tuple[int, ...]
    """Neighbours that are drawn at every hop, from the seed nodes on; -1: all."""
    way: str = "apart"
    """apart: each worker expands its own seed nodes. together: every node of the joint batch is computed once."""
    structure: str = "here"
    """here: every worker reads the edges of all parts from their files. owner: owners are asked for neighbours."""
    rows: str = "host"
    """Feature rows of other parts. host: those of this host's workers are read from their files. here: those of all
    parts whose files can be read here. owner: owners are asked."""
    pairs: PairPolicy | None = None
    """How unsupervised training draws the nodes that seed nodes are compared with; None: seed nodes have labels."""
