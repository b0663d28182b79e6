"""The sampling of a batch as a DAG of small tasks: seed nodes, pairs, neighbourhood by hops and chunks, features, end.

The logical DAG is made once; `launch` makes the instance of a step. Hops are split into chunks of vertices. A chunk's
neighbours are drawn by any thread; they get their numbers chunk after chunk, so that these depend on nothing but the
step; and the rows of a chunk of new nodes are read as soon as it has numbers. Rows of other workers are asked for when
all nodes are known, while the next batches are drawn. In unsupervised training positives and negatives are drawn side
by side; all nodes of the pairs are expanded together, so that each is computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm import Ledger, Where
from isthmus.errors import InputError
from isthmus.kernels import Csr
from isthmus.minibatch.apart import Here
from isthmus.minibatch.batch import Batch, BatchMaker, Expanded
from isthmus.minibatch.pairs import Pairs
from isthmus.minibatch.policy import BatchPolicy
from isthmus.minibatch.pool import Arrive, Pool, Task
from isthmus.outside import imported
from isthmus.sample import Block, Expansion, NeighbourSampler, Numbering, Structure

CHUNK = 16384
Finished = Callable[[Batch], None]


@dataclass
class Operators:
    """The operators of a sampling DAG. A subclass may replace any of them (``operators=package.module:NAME``).

    Each is called by several threads at once, for several steps; what it returns may depend on its arguments alone.
    """

    maker: BatchMaker

    def seeds(self, step: int) -> Tensor:
        """Return the seed nodes of this worker, int64 [s], book ids."""
        return self.maker.seeds(step)

    def positive(self, seeds: Tensor, step: int) -> Tensor:
        """Return the node near each seed node that unsupervised training compares it with, int64 [s], book ids."""
        assert self.maker.pairing is not None
        return self.maker.pairing.positive(seeds, step)

    def negative(self, seeds: Tensor, step: int) -> Tensor:
        """Return the nodes that it compares each seed node with as far ones, int64 [s, Q], book ids."""
        assert self.maker.pairing is not None
        return self.maker.pairing.negative(seeds, step)

    def neighbours(
        self, sampler: NeighbourSampler, structure: Structure, rows: Tensor, where: tuple[int, int]
    ) -> Expansion:
        """Draw the neighbours of some rows of the structure (int32), as its columns (int32); ``where``: (step, hop)."""
        return sampler.draw(structure, rows, *where)

    def features(self, nodes: Tensor, out: Tensor) -> Tensor:
        """Write the rows that this worker has of some nodes (int64, book ids); return the places of the others."""
        return self.maker.rows.read_here(nodes, out)


@dataclass
class SamplingDag:
    """The logical DAG of a run: what every instance has in common."""

    maker: BatchMaker
    operators: Operators
    threads: int
    chunk: int
    """Vertices of a chunk."""
    most_bytes: float
    """Of batches that are made and wait."""
    asks_labels: bool
    """Whether the labels of seed nodes may be at other workers."""
    device: torch.device
    """Where batches are trained on."""
    _spare: list[Numbering] = field(default_factory=list)
    _rows: int = 0

    @property
    def here(self) -> Here | None:
        """The expander, if this worker has all edges; else the neighbourhood is one request."""
        return self.maker.expander if isinstance(self.maker.expander, Here) else None

    @property
    def requests(self) -> int:
        """The requests to other workers that every instance makes."""
        if self.maker.transport.size == 1:
            return 0 if self.here else 1
        return self.asks_labels + (1 if self.here else 2)

    @property
    def hops(self) -> int:
        return len(self.here.sampler.fanouts) if self.here else 0

    def launch(self, step: int, pool: Pool, finished: Finished) -> None:
        """Make the instance of a step, and let it run."""
        instance = _Instance(self, step, pool, finished)
        instance.add(instance.start)

    def numbering(self) -> Numbering:
        """Return a table that no instance uses."""
        assert self.here is not None
        try:
            return self._spare.pop()
        except IndexError:
            return Numbering(self.here.structure.num_rows)

    def give_back(self, numbering: Numbering) -> None:
        self._spare.append(numbering)

    def buffer(self, rows: int) -> Tensor:
        """Return memory for the features of a batch that has at least so many rows: those of the largest so far."""
        self._rows = max(self._rows, rows + rows // 8)
        return self.maker.rows.none(self._rows)


class _Instance:
    """The DAG of one step while it runs. What one task writes, tasks after it read."""

    def __init__(self, dag: SamplingDag, step: int, pool: Pool, finished: Finished):
        self.dag, self.step, self.pool, self.finished = dag, step, pool, finished
        self.asked = 0
        self.before_end: list[Task] = []
        self.blocks: list[Block] = []
        self.y: Tensor | Pairs
        self.x = dag.maker.rows.none(0)
        self.read = 0  # nodes whose rows are read by the tasks so far
        self.beyond: list[tuple[int, Tensor]] = []
        self.others: list[tuple[int, Tensor]] = []  # places of other workers' rows, from each task its first node on
        self.arrived: list[tuple[Tensor, Tensor]] = []  # places, rows
        self.ledger, self.elsewhere = Ledger(), 0
        self.waited = Ledger()  # of what arrives, which another thread counts

    def add(self, run: Callable[[], None], cost: float = 0.0, after: Iterable[Task] = ()) -> Task:
        return self.pool.add(Task(self.step, run, cost), after)

    def ask(self, run: Callable[[], Arrive | None], after: Iterable[Task] = ()) -> Task:
        """Add a request, the next of this DAG. Every worker adds the same ones in the same order."""
        turn, self.asked = (self.step, self.asked), self.asked + 1
        return self.pool.add(Task(self.step, run, turn=turn), after)

    @property
    def alone(self) -> bool:
        return self.dag.maker.transport.size == 1

    def start(self) -> None:
        """Take the seed nodes, and begin with their labels or pairs, and their neighbours."""
        dag = self.dag
        self.seeds = dag.operators.seeds(self.step)
        if dag.maker.pairing is None:
            asks = dag.asks_labels and not self.alone
            self.before_end.append(self.ask(self._labels) if asks else self.add(self._labels))
        if dag.here is None:
            self.ask(self._expand)  # also alone: its tables serve one batch at a time
        elif dag.maker.pairing is None:
            self._begin(self.seeds)
        else:
            self.add(self._pairs, after=(self.add(self._positive), self.add(self._negative)))

    def _positive(self) -> None:
        self.positive = self.dag.operators.positive(self.seeds, self.step)

    def _negative(self) -> None:
        self.negative = self.dag.operators.negative(self.seeds, self.step)

    def _pairs(self) -> None:
        nodes, self.y = Pairs.among(self.seeds, self.positive, self.negative)
        self._begin(nodes)

    def _begin(self, nodes: Tensor) -> None:
        """Give the first numbers to the nodes whose results are computed, and draw their neighbours."""
        assert self.dag.here is not None
        self.numbering = self.dag.numbering()
        self.numbering.start(self.dag.here.structure.rows_of(nodes))
        self._hop(0)

    def _labels(self) -> None:
        labels = self.dag.maker.labels
        if self.dag.asks_labels:
            y = labels.pull(self.seeds, self.step, "labels")
        else:
            y = torch.empty(len(self.seeds), labels.width, dtype=labels.own.dtype)
            labels.read_here(self.seeds, y)
        self.y = y.view(-1) if y.shape[1:] == (1,) else y

    def _hop(self, hop: int) -> None:
        """Add the tasks of a hop: chunks of the frontier are drawn, then numbered one after the other."""
        here, frontier, chunk = self.dag.here, self.numbering.nodes, self.dag.chunk
        assert here is not None
        self.parts: list[tuple[Tensor, Expansion]] = []
        last: tuple[Task, ...] = ()
        starts = range(0, max(len(frontier), 1), chunk)
        for at in starts:
            rows, drawn = frontier[at : at + chunk], list[Expansion]()
            draw = self.add(partial(self._draw, rows, hop, drawn), float(len(rows) * here.looks_at(hop)))
            number = partial(self._number, drawn, hop if at == starts[-1] else None)
            last = (self.add(number, after=(draw, *last)),)

    def _draw(self, rows: Tensor, hop: int, drawn: list[Expansion]) -> None:
        here = self.dag.here
        assert here is not None
        drawn.append(self.dag.operators.neighbours(here.sampler, here.structure, rows, (self.step, hop)))

    def _number(self, drawn: list[Expansion], ends: int | None) -> None:
        """Number the neighbours of a chunk; their rows can be read now. ``ends``: the hop of which it is the last."""
        (found,) = drawn
        self.parts.append((self.numbering.add(found.indptr, found.neighbours).indices, found))
        nodes = self.numbering.nodes
        if ends is not None:
            self.blocks.insert(0, _joined(self.parts, len(nodes)))
        if ends is not None and ends + 1 == self.dag.hops:
            self._finish(nodes)
            return
        self._read(nodes)
        if ends is not None:
            self._hop(ends + 1)

    def _expand(self) -> None:
        """Let owners draw the whole neighbourhood: of some structures nobody has all edges."""
        wanted = self.seeds
        if self.dag.maker.pairing is not None:
            self._positive()  # may ask owners, too
            self._negative()
            wanted, self.y = Pairs.among(self.seeds, self.positive, self.negative)
        self.found = self.dag.maker.expander.expand(wanted, self.step)
        self._finish(self.found.nodes)

    def _read(self, nodes: Tensor, last: bool = False) -> None:
        """Add tasks that read the rows of those nodes of the batch that are new, in chunks; ``last``: also of the rest.

        ``nodes``: all that are known so far.
        """
        while (count := min(len(nodes) - self.read, self.dag.chunk)) == self.dag.chunk or (last and count):
            if not self.read:
                self.x = self.dag.buffer(len(nodes))
            first, self.read = self.read, self.read + count
            task = self.add(partial(self._features, nodes[first : self.read], first), float(count * self.x.shape[1]))
            self.before_end.append(task)

    def _features(self, nodes: Tensor, first: int) -> None:
        room = self.x[first : first + len(nodes)]
        if len(room) < len(nodes):  # the largest batch so far
            room = torch.empty(len(nodes), self.x.shape[1], dtype=self.x.dtype)
            self.beyond.append((first, room))
        self.others.append((first, self.dag.operators.features(nodes.long(), room)))

    def _finish(self, nodes: Tensor) -> None:
        """Add what is left to do when all nodes of the batch are known: their rows, and the end."""
        self._read(nodes, last=True)
        if not self.alone:
            self.before_end.append(self.ask(partial(self._fetch, nodes), tuple(self.before_end)))
        self.add(self._end, after=self.before_end)

    def _fetch(self, nodes: Tensor) -> Arrive:
        """Ask for the rows of other workers."""
        in_order = sorted(self.others, key=lambda piece: piece[0])
        places = torch.cat([nodes.new_empty(0).long(), *(places + first for first, places in in_order)])
        rows, where = self.dag.maker.rows, Where("features", "pull", self.step, "features")
        fetched = rows.fetch(nodes[places].long(), where)
        self.ledger.add(self.dag.maker.transport.ledger.take())
        self.elsewhere += len(places)

        def arrive() -> None:
            spent = Ledger()
            self.arrived += [(places[at], block) for at, block in fetched.wait(spent)]
            self.waited.add(spent)

        return arrive

    def _end(self) -> None:
        """Put the batch together."""
        found = self.found if self.dag.here is None else self._expanded(self.dag.here)
        x, n = self.x, len(found.nodes)
        if n > len(x):
            x = self.dag.buffer(n)
            x[: len(self.x)] = self.x
            self.beyond.sort(key=lambda piece: piece[0])
        x = x[:n]
        for first, rows in self.beyond:
            x[first : first + len(rows)] = rows
        for places, rows in self.arrived:
            x[places] = rows
        self.ledger.add(self.waited)
        self.ledger.rows_local = self.dag.maker.rows.from_files(found.nodes, self.elsewhere)
        seeds = len(self.dag.maker.order.at(self.step))
        batch = Batch(self.step, seeds, found.nodes, found.layers, x, self.y, self.ledger)
        self.finished(batch.to(self.dag.device))

    def _expanded(self, here: Here) -> Expanded:
        nodes, structure = self.numbering.nodes, here.structure
        _, degree = kernels.row_spans(structure.pattern, nodes)
        original = nodes.long() if structure.original is None else kernels.gather_ids(structure.original, nodes)
        found = here.expanded(tuple(self.blocks), nodes.long(), original, degree)
        self.dag.give_back(self.numbering)
        return found


def sampling_dag(maker: BatchMaker, policy: BatchPolicy, device: torch.device) -> SamplingDag:
    """Return the logical DAG of a run."""
    asked = policy.dag
    assert asked is not None
    make = Operators if asked.operators == "usual" else imported(asked.operators, "operators")
    if not (isinstance(make, type) and issubclass(make, Operators)):
        raise InputError(f"{asked.operators} is no subclass of isthmus.minibatch.Operators: make it one")
    threads = asked.threads or torch.get_num_threads()
    return SamplingDag(
        maker,
        make(maker),
        threads,
        asked.chunk or (CHUNK if threads > 1 else 2**31),  # one thread has nothing to run beside a chunk
        asked.queue_mb * 1e6,
        policy.share != "owner" and maker.pairing is None,
        device,
    )


def _joined(parts: list[tuple[Tensor, Expansion]], num_cols: int) -> Block:
    """Return the block of a hop from its chunks."""
    (numbers, found), *more = parts
    if not more:
        return Block(Csr(found.indptr, numbers, num_cols), found.scale, found.weight, data=found.data)
    counts = torch.cat([one.indptr.diff() for _, one in parts])
    indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    csr = Csr(indptr, torch.cat([each for each, _ in parts]), num_cols)
    weight, data = (
        torch.cat(some) if (some := [one for one in of_edges if one is not None]) else None
        for of_edges in zip(*((one.weight, one.data) for _, one in parts), strict=True)
    )
    return Block(csr, torch.cat([one.scale for _, one in parts]), weight, data=data)
