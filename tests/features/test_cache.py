"""The feature cache, seen from both ends: features are planted so that each row names its node."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

import numpy as np
import pytest
import torch
from graphs import community_graph, cut
from torch import Tensor

from isthmus.comm import FORWARD, Hub, Stages
from isthmus.errors import InputError
from isthmus.features import CachePolicy
from isthmus.kernels import Csr
from isthmus.local import LocalGraph, Policy
from isthmus.sample import Boundary, Neighbours, OptimalBoundary

STEPS, REFRESH, WORKERS = 9, 3, 3
SAMPLERS = {
    "independent": Neighbours(0.3, REFRESH),
    "coupled": Neighbours(0.3, REFRESH, coupled=True),
    "optimal": OptimalBoundary(0.4, REFRESH),
    "boundary": Boundary(0.4),
    "whole": None,
}
ORDERS = ("none", "random", "degree", "inclusion")
ROOM = {0: lambda halo: 0, 4: lambda halo: 4, 0.4: lambda halo: int(0.4 * halo), 1000: lambda halo: halo}


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    return cut(community_graph(60, directed=True), WORKERS, "random", tmp_path_factory.mktemp("parts"))


def planted(nodes: Tensor) -> Tensor:
    """Return float64 [n, 3]; rows of large ids are long, so that norms differ."""
    ids = nodes.double()
    return torch.stack([ids + 1, -ids, torch.full_like(ids, 0.5)], dim=1)


def policy_of(cache: CachePolicy, sampler: str = "independent", delay: int = 0, warm: bool = True) -> Policy:
    stages = Stages(delay=delay, warm=warm)
    return Policy(forward=stages, backward=stages, sampler=SAMPLERS[sampler], cache=cache, seed=3)


@dataclass(frozen=True)
class Seen:
    """The observations of one worker in a step; one entry per other worker in each list."""

    sent: list[int]  # features that left for a reader, because its graphs read them
    fetched: list[int]  # features that left for a reader's cache
    missed: list[int]  # per owner: halo nodes of the graphs asked for that are not kept
    new: list[int]  # per owner: halo nodes that are kept since this step
    kept: list[Tensor]  # per owner: ids of the halo nodes that are kept
    kept_by: list[Tensor]  # per reader: ids of my nodes that it keeps, as I believe


class Walk:
    """A run of steps that read features as `halo` and as `aggregate` do, in turn, with evaluations in between."""

    def __init__(self, graph: LocalGraph, room: int | None = None):
        self.graph, self.room = graph, graph.runtime.whole.num_halo if room is None else room
        self.x, self.cache = graph.runtime.fix(planted(graph.nodes)), graph.runtime.cached.cache
        self.links, self.ledger = graph.runtime.whole.links, graph.runtime.transport.ledger
        self.hits = self.misses = 0

    def run(self) -> list[Seen]:
        seen = []
        for step in range(STEPS):
            seen.append(self.step(step))
            if step % 4 == 1:
                self.evaluate(step)
        self.graph.runtime.drain()
        return seen

    def step(self, step: int) -> Seen:
        before, held = self.sent(), self.kept()
        self.graph.runtime.begin(step)
        assert (aggregated_rightly if step % 2 else read_rightly)(self.graph, self.x)
        kept, missed = self.kept(), torch.zeros(len(held), dtype=torch.int64)
        self.check_buffer(kept)
        for due in dues(self.graph, step):
            drawn = self.drawn(due)
            self.hits += int((drawn & kept).sum())
            missed += drawn & ~kept
        self.misses += int(missed.sum())
        assert (self.ledger.cache_hits, self.ledger.cache_misses) == (self.hits, self.misses)
        sent, fetched = (self.sent() - before).tolist()
        by_owner, believed = self.links.mirrors.split, zip(self.links.send_rows, self.cache.kept_by, strict=True)
        ids = zip(by_owner(self.graph.runtime.whole.halo_nodes), by_owner(kept), strict=True)
        return Seen(
            sent=sent,
            fetched=fetched,
            missed=[int(part.sum()) for part in by_owner(missed)],
            new=[int(part.sum()) for part in by_owner(kept & ~held)],
            kept=[nodes[part] for nodes, part in ids],
            kept_by=[self.graph.nodes[rows[part].long()] for rows, part in believed],
        )

    def evaluate(self, step: int) -> None:
        """Evaluate, which reads everything and keeps nothing of it."""
        self.graph.runtime.begin(step, training=False)
        halo = self.graph.halo(self.x)[self.graph.num_inner :]
        assert torch.equal(halo, planted(self.graph.runtime.whole.halo_nodes))

    def kept(self) -> Tensor:
        return self.cache.where_of >= 0

    def check_buffer(self, kept: Tensor) -> None:
        """Check that the budget is kept, and that the map points to the right rows."""
        slots, rows = self.cache.where_of[kept].long(), self.cache.rows
        assert len(slots) == len(slots.unique()) == len(rows) <= self.room
        assert torch.equal(rows[slots], planted(self.graph.runtime.whole.halo_nodes[kept]))

    def drawn(self, step: int) -> Tensor:
        """Return the halo nodes that the graph of a step reads, bool [h]."""
        picked = self.graph.runtime.schedule.at(step).picked
        read = torch.full_like(self.kept(), picked is None)
        return read if picked is None else read.index_fill_(0, picked, True)

    def sent(self) -> Tensor:
        """Return the rows sent so far to each worker: features for graphs, and features for caches."""
        sites = [[self.ledger.rows[site, FORWARD, q] for q in range(WORKERS)] for site in (0, "cache")]
        return torch.tensor(sites)


def dues(graph: LocalGraph, step: int) -> range:
    """Return the steps whose features are asked for at this one."""
    stages = graph.runtime.row_stages
    return range(step if step == 0 and stages.warm else step + stages.delay, step + stages.delay + 1)


def read_rightly(graph: LocalGraph, x: Tensor) -> bool:
    return torch.equal(graph.halo(x), planted(torch.cat([graph.nodes, graph.halo_nodes])))


def aggregated_rightly(graph: LocalGraph, x: Tensor) -> bool:
    edges = graph.runtime.drawn
    halo = planted(edges.halo_nodes)
    scale = edges.norm("sum", torch.float64).halo
    halo = halo if scale is None else halo * scale[:, None]
    want = dense(edges.inner, edges.inner_weight) @ x + dense(edges.halo, edges.halo_weight) @ halo
    return torch.allclose(graph.aggregate(x, "sum"), want, rtol=1e-12)


def dense(csr: Csr, weight: Tensor | None) -> Tensor:
    out = torch.zeros(csr.num_rows, csr.num_cols, dtype=torch.float64)
    out[csr.edge_rows, csr.indices.long()] = 1.0 if weight is None else weight
    return out


def local(book, transport, policy: Policy) -> LocalGraph:
    part = book.part(transport.rank)
    return LocalGraph.from_part(part, transport, book.symmetric, policy=policy, dtype=torch.float64)


CASES = [
    *(("independent", order, rows, delay) for order in ORDERS for rows in ROOM for delay in (0, 2)),
    *((sampler, "inclusion", 0.4, delay) for sampler in SAMPLERS for delay in (0, 1) if sampler != "independent"),
    ("whole", "degree", 4, 2),
    ("optimal", "random", 0.4, 2),
]


@pytest.mark.parametrize(("sampler", "order", "rows", "delay"), CASES, ids=str)
def test_every_row_that_is_read_is_the_right_one(book, sampler, order, rows, delay):
    """The budget is kept too, hits agree with the map, owners know the map and send nothing that is on it."""
    policy = policy_of(CachePolicy(order, rows), sampler, delay)

    def work(transport):
        graph = local(book, transport, policy)
        return Walk(graph, 0 if order == "none" else ROOM[rows](graph.runtime.whole.num_halo)).run()

    walks = Hub(WORKERS).run(work)
    for seen in zip(*walks, strict=True):
        for owner, reader in permutations(range(WORKERS), 2):
            mine, theirs = seen[owner], seen[reader]
            assert mine.sent[reader] == theirs.missed[owner]
            assert mine.fetched[reader] == theirs.new[owner]
            assert torch.equal(mine.kept_by[reader], theirs.kept[owner])
    kept = sum(len(nodes) for walk in walks for nodes in walk[-1].kept)
    sent = sum(sum(seen.sent) for walk in walks for seen in walk)
    assert (kept > 0) == (order != "none" and rows > 0)
    assert (sent > 0) == (kept == 0 or rows < 1000)


@pytest.mark.parametrize("order", ORDERS[1:])
def test_the_cache_changes_with_the_probabilities_only(book, order):
    """Norms measured at step s are known at s + 1. Degrees never change, so with them nothing is fetched again."""
    policy = policy_of(CachePolicy(order, 0.4))
    for walk in Hub(WORKERS).run(lambda transport: Walk(local(book, transport, policy)).run()):
        changed = {step for step, seen in enumerate(walk) if sum(seen.new)}
        assert changed == {0} if order in ("degree", "random") else {0, 1} <= changed <= {0, *range(1, STEPS, REFRESH)}


def test_features_may_be_read_twice_in_a_step(book):
    def work(transport):
        graph = local(book, transport, policy_of(CachePolicy("inclusion", 0.4), delay=1))
        x = graph.runtime.fix(planted(graph.nodes))
        for step in range(STEPS):
            graph.runtime.begin(step)
            assert read_rightly(graph, x)
            assert aggregated_rightly(graph, x)
        graph.runtime.drain()

    Hub(WORKERS).run(work)


def test_before_delayed_rows_arrive_only_kept_ones_are_there(book):
    """The other rows are zero until step τ, as published."""

    def work(transport):
        graph = local(book, transport, policy_of(CachePolicy("degree", 0.4), delay=2, warm=False))
        x, found = graph.runtime.fix(planted(graph.nodes)), []
        for step in range(4):
            graph.runtime.begin(step)
            rows = graph.halo(x)[graph.num_inner :]
            there = (graph.runtime.cached.cache.where_of >= 0)[graph.runtime.drawn.picked] | torch.tensor(step >= 2)
            assert torch.equal(rows, planted(graph.halo_nodes) * there[:, None])
            found.append(there.double().mean())
        graph.runtime.drain()
        return found

    for found in Hub(WORKERS).run(work):
        assert 0 < found[0] < 1


def test_the_largest_stay_and_of_equals_the_first():
    inclusion, degree = torch.tensor([0.2, 0.9, 0.2, 0.9, 0.2, 0.1]).double(), torch.tensor([3, 1, 7, 3, 3, 0])
    chosen = {
        (order, rows): CachePolicy(order, rows).choose(inclusion, degree, key=5).tolist()
        for order in ORDERS
        for rows in (0, 1, 2, 3, 0.5, 0.99, 5, 6, 100)
    }
    assert chosen["inclusion", 1] == [1]
    assert chosen["inclusion", 2] == [1, 3]
    assert chosen["inclusion", 3] == chosen["inclusion", 0.5] == [0, 1, 3]
    assert chosen["inclusion", 5] == chosen["inclusion", 0.99] == [0, 1, 2, 3, 4]
    assert chosen["degree", 1] == [2]
    assert chosen["degree", 2] == [0, 2]
    assert chosen["degree", 0.5] == [0, 2, 3]
    for rows in (0, 1, 2, 3, 5, 6, 100):
        assert chosen["none", rows] == []
        assert len(set(chosen["random", rows])) == len(chosen["random", rows]) == min(rows, 6)
        assert chosen["random", rows] == sorted(chosen["random", rows])
    assert chosen["inclusion", 6] == chosen["degree", 100] == chosen["random", 100] == list(range(6))


def test_random_rows_are_as_likely_and_named_by_their_key():
    policy, none = CachePolicy("random", 0.3), torch.zeros(20)
    counts = np.zeros(20)
    for key in range(600):
        counts[policy.choose(none, none, key)] += 1
    assert torch.equal(policy.choose(none, none, 9), policy.choose(none, none, 9))
    assert np.abs(counts / 600 - 0.3).max() < 5 * (0.3 * 0.7 / 600) ** 0.5


@pytest.mark.parametrize("given", [{"order": "lru"}, {"rows": -0.5}])
def test_nonsense_is_refused(given):
    with pytest.raises(InputError, match=r"unknown cache|at least 0"):
        CachePolicy(**given)


def test_inclusion_hits_most(tmp_path):
    """Inclusion wins at ε = 0.3 on communities, where norms of rows and degrees differ."""
    graph = community_graph(400, degree=8.0)
    parts = cut(graph, 2, "metis", tmp_path)
    rows = torch.from_numpy(graph.x * np.exp(np.random.default_rng(0).normal(size=(400, 1))))

    def hit_rate(order: str) -> float:
        def work(transport):
            local_graph = local(parts, transport, policy_of(CachePolicy(order, 0.3), delay=1))
            x, ledger = local_graph.runtime.fix(rows[local_graph.nodes]), transport.ledger
            for step in range(20):
                local_graph.runtime.begin(step)
                local_graph.aggregate(x, "gcn")
            local_graph.runtime.drain()
            return ledger.cache_hits, ledger.cache_misses

        hits, misses = np.sum(Hub(2).run(work), axis=0)
        return hits / (hits + misses)

    rate = {order: hit_rate(order) for order in ORDERS}
    assert rate["none"] == 0
    assert rate["random"] > 0.2
    assert rate["inclusion"] >= rate["degree"] + 0.03
    assert rate["inclusion"] >= rate["random"] + 0.07
    assert rate["degree"] >= rate["random"] - 0.03
