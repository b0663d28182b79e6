"""The feature cache, looked at from both ends: features are planted so that each row names its node."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from graphs import community_graph, cut
from torch import Tensor

from isthmus.cache import CachePolicy
from isthmus.comm import FORWARD, Hub, Stages
from isthmus.errors import InputError
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


@pytest.fixture(autouse=True)
def one_thread_per_worker():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    return cut(community_graph(60, directed=True), WORKERS, "random", tmp_path_factory.mktemp("parts"))


def planted(nodes: Tensor) -> Tensor:
    """float64 [n, 3]; rows of large ids are long, so that sizes say something."""
    ids = nodes.double()
    return torch.stack([ids + 1, -ids, torch.full_like(ids, 0.5)], dim=1)


def policy_of(cache: CachePolicy, sampler: str = "independent", delay: int = 0, warm: bool = True) -> Policy:
    stages = Stages(delay=delay, warm=warm)
    return Policy(forward=stages, backward=stages, sampler=SAMPLERS[sampler], cache=cache, seed=3)


@dataclass
class Log:
    """What one worker saw; one entry per step, and one number per worker in each."""

    sent: list[list[int]] = field(default_factory=list)  # features that left, to each reader
    missed: list[list[int]] = field(default_factory=list)  # features that were asked for, of each owner
    fetched: list[list[int]] = field(default_factory=list)  # of each reader, for its cache
    new: list[list[int]] = field(default_factory=list)  # of each owner: rows that came into the cache
    kept: list[list[Tensor]] = field(default_factory=list)  # nodes of each owner that are in the cache
    kept_by: list[list[Tensor]] = field(default_factory=list)  # my nodes that each reader keeps, as I believe


def walk(graph: LocalGraph, room: int) -> Log:
    """Steps in which features are read as `halo` and as `aggregate` do, in turn; with evaluations in between."""
    x, log, ledger = graph.fix(planted(graph.nodes)), Log(), graph.transport.ledger
    cache, links, whole = graph.features.cache, graph.whole.links, graph.whole
    before, hits = {}, 0
    for step in range(STEPS):
        old = cache.where_of.clone()
        graph.begin(step)
        read = aggregated_rightly if step % 2 else read_rightly
        assert read(graph, x)
        kept = cache.where_of >= 0
        assert int(kept.sum()) == len(cache.rows) <= room
        assert torch.equal(cache.rows[cache.where_of[kept].long()], planted(whole.halo_nodes[kept]))
        missed = torch.zeros(whole.num_halo, dtype=torch.int64)
        for due in dues(graph, step):
            picked = graph.drawing.at(due).picked
            drawn = torch.ones_like(kept) if picked is None else torch.zeros_like(kept).index_fill_(0, picked, True)
            missed += drawn & ~kept
            hits += int((drawn & kept).sum())
        assert ledger.cache_hits == hits
        now = {(site, q): ledger.rows[site, FORWARD, q] for site in (0, "cache") for q in range(WORKERS)}
        log.sent.append([now[0, q] - before.get((0, q), 0) for q in range(WORKERS)])
        log.fetched.append([now["cache", q] - before.get(("cache", q), 0) for q in range(WORKERS)])
        log.missed.append([int(part.sum()) for part in links.halo.split(missed)])
        log.new.append([int(part.sum()) for part in links.halo.split(kept & (old < 0))])
        mine = links.halo.split(whole.halo_nodes)
        log.kept.append([nodes[part] for nodes, part in zip(mine, links.halo.split(kept), strict=True)])
        log.kept_by.append(
            [whole.nodes[rows[k].long()] for rows, k in zip(links.send_rows, cache.kept_by, strict=True)]
        )
        if step % 4 == 1:
            graph.begin(step, training=False)
            assert torch.equal(graph.halo(x)[graph.num_inner :], planted(whole.halo_nodes))
        before = {(site, q): ledger.rows[site, FORWARD, q] for site, q in now}
    return log


def dues(graph: LocalGraph, step: int) -> range:
    """The steps whose features are asked for at this one."""
    stages = graph.policy.forward
    return range(step if step == 0 and stages.warm else step + stages.delay, step + stages.delay + 1)


def read_rightly(graph: LocalGraph, x: Tensor) -> bool:
    return torch.equal(graph.halo(x), planted(torch.cat([graph.nodes, graph.halo_nodes])))


def aggregated_rightly(graph: LocalGraph, x: Tensor) -> bool:
    edges = graph.edges
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
    """And: the budget is kept, hits are what the map says, owners know the map and send nothing that is on it."""
    policy = policy_of(CachePolicy(order, rows), sampler, delay)

    def work(transport):
        graph = local(book, transport, policy)
        return walk(graph, 0 if order == "none" else ROOM[rows](graph.whole.num_halo))

    logs = Hub(WORKERS).run(work)
    pairs = [(q, r) for q in range(WORKERS) for r in range(WORKERS) if q != r]
    for step in range(STEPS):
        for owner, reader in pairs:
            mine, theirs = logs[owner], logs[reader]
            assert mine.sent[step][reader] == theirs.missed[step][owner]
            assert mine.fetched[step][reader] == theirs.new[step][owner]
            assert torch.equal(mine.kept_by[step][reader], theirs.kept[step][owner])
    kept = sum(len(nodes) for log in logs for nodes in log.kept[-1])
    assert kept == 0 if order == "none" or rows == 0 else kept > 0
    sent = sum(sum(step) for log in logs for step in log.sent)
    assert sent == 0 if kept and rows == 1000 else sent > 0


@pytest.mark.parametrize("order", ORDERS[1:])
def test_what_stays_is_fetched_once(book, order):
    """A refresh that chooses the same rows costs nothing; what it drops is sent again when it is read."""

    def work(transport):
        graph = local(book, transport, policy_of(CachePolicy(order, 0.4)))
        return walk(graph, graph.whole.num_halo)

    for log in Hub(WORKERS).run(work):
        changed = [step for step in range(1, STEPS) if sum(log.new[step])]
        refreshes = [step for step in range(1, STEPS) if step % REFRESH == 1]
        assert changed == ([] if order == "degree" else [step for step in changed if step in refreshes])
        assert sum(log.new[0]) == sum(map(len, log.kept[0]))


@pytest.mark.xfail(strict=True, reason="Features.fetches has one place per step: the second read finds none of its own")
def test_features_may_be_read_twice_in_a_step(book):
    def work(transport):
        graph = local(book, transport, policy_of(CachePolicy("inclusion", 0.4), delay=1))
        x = graph.fix(planted(graph.nodes))
        for step in range(STEPS):
            graph.begin(step)
            assert read_rightly(graph, x)
            assert aggregated_rightly(graph, x)

    Hub(WORKERS).run(work)


def test_before_delayed_rows_arrive_only_kept_ones_are_there(book):
    """As published: the others are zero until step τ."""

    def work(transport):
        graph = local(book, transport, policy_of(CachePolicy("degree", 0.4), delay=2, warm=False))
        x, found = graph.fix(planted(graph.nodes)), []
        for step in range(4):
            graph.begin(step)
            rows = graph.halo(x)[graph.num_inner :]
            there = (graph.features.cache.where_of >= 0)[graph.edges.picked] | torch.tensor(step >= 2)
            assert torch.equal(rows, planted(graph.halo_nodes) * there[:, None])
            found.append(there.double().mean())
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
    """At ε = 0.3 on communities; the rows' sizes differ, and so do the degrees."""
    graph = community_graph(400, degree=8.0)
    parts = cut(graph, 2, "metis", tmp_path)
    rows = torch.from_numpy(graph.x * np.exp(np.random.default_rng(0).normal(size=(400, 1))))

    def hit_rate(order: str) -> float:
        def work(transport):
            local_graph = local(parts, transport, policy_of(CachePolicy(order, 0.3), delay=1))
            x, ledger = local_graph.fix(rows[local_graph.nodes]), transport.ledger
            for step in range(40):
                local_graph.begin(step)
                local_graph.aggregate(x, "gcn")
            return ledger.cache_hits, ledger.cache_misses

        hits, misses = np.sum(Hub(2).run(work), axis=0)
        return hits / (hits + misses)

    rate = {order: hit_rate(order) for order in ORDERS}
    assert rate["none"] == 0
    assert rate["random"] > 0.2
    assert rate["inclusion"] >= rate["degree"] + 0.03
    assert rate["inclusion"] >= rate["random"] + 0.07
    assert rate["degree"] >= rate["random"] - 0.03
