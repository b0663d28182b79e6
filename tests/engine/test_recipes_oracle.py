"""Every recipe against the literal algorithm of its paper, step by step; its limits; and that BNS is unbiased."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from graphs import community_graph, cut
from oracle.bns import BoundaryNodes
from oracle.coded import Coded, Ring
from oracle.full_graph import losses, propagation
from oracle.partition_parallel import Links, Policy, Training
from oracle.pipegcn import Pipe
from oracle.random_edges import RandomEdges
from oracle.sancus import Skip, epoch_adaptive, epoch_fixed

from isthmus.comm import Hub
from isthmus.engine import TrainConfig, train
from isthmus.errors import InputError
from isthmus.local import LocalGraph
from isthmus.nn import ModelConfig
from isthmus.recipes import find

STEPS, SEED, LR, HIDDEN = 30, 2, 0.5, 8


@dataclass(frozen=True)
class Place:
    """Where a recipe is tried. Ten classes make the last layer widen, so that its input is exchanged."""

    workers: int
    model: str
    savings: str = "inherited"
    classes: int = 5
    directed: bool = False

    def __str__(self) -> str:
        return f"{self.workers}-{self.model}-{self.savings}{'-directed' * self.directed}"


PLACES = {
    "a": Place(2, "gcn"),
    "b": Place(3, "sage", "as-published"),
    "c": Place(4, "sage", classes=10),
    "d": Place(2, "gcn", "as-published", directed=True),
}


@dataclass(frozen=True)
class Case:
    recipe: str
    options: dict[str, Any]
    oracle: Callable[[Links], Policy]
    places: str = ""  # "": one of them

    @property
    def coded(self) -> bool:
        return "bits" in self.options or "bits_gradients" in self.options

    def __str__(self) -> str:
        return "-".join([self.recipe, *(f"{name}={value}" for name, value in self.options.items())])

    def asked(self, place: Place) -> tuple[str, dict[str, Any]]:
        """Its name and options there; exact is vanilla as published."""
        if self.recipe == "exact":
            return ("exact" if place.savings == "inherited" else "vanilla"), self.options
        return self.recipe, self.options | ({"savings": place.savings} if self.recipe != "cagnet" else {})


def pipe(**options) -> Callable[[Links], Policy]:
    return lambda links: Pipe(links, **options)


def skip(**options) -> Callable[[Links], Policy]:
    return lambda links: Skip(links, **options)


CASES = [
    Case("exact", {}, Policy, places="cd"),
    Case("bns", {"rate": 0.4}, lambda links: BoundaryNodes(links, 0.4, seed=SEED), places="abcd"),
    Case(
        "bns",
        {"rate": 0.1, "sample_size": "as-published"},
        lambda links: BoundaryNodes(links, 0.1, "as-published", seed=SEED),
    ),
    Case("bns", {"rate": 0.02}, lambda links: BoundaryNodes(links, 0.02, seed=SEED)),
    Case("bns", {"rate": 0.0}, lambda links: BoundaryNodes(links, 0.0)),
    Case("bns", {"rate": 0.4, "seed": 7}, lambda links: BoundaryNodes(links, 0.4, seed=7)),
    Case("boundary-edge", {"rate": 0.3}, lambda links: RandomEdges(links, 0.3, "boundary", SEED), places="ad"),
    Case("drop-edge", {"rate": 0.3}, lambda links: RandomEdges(links, 0.3, "all", SEED), places="abcd"),
    Case("pipegcn", {}, pipe(), places="ab"),
    Case("pipegcn", {"staleness": 3, "start": "as-published"}, pipe(staleness=3, start="as-published")),
    Case("pipegcn", {"smooth_features": 0.8}, pipe(smooth_features=0.8)),
    Case(
        "pipegcn",
        {"smooth_features": 0.7, "smooth_gradients": 0.95, "staleness": 2},
        pipe(smooth_features=0.7, smooth_gradients=0.95, staleness=2),
        places="abcd",
    ),
    Case(
        "pipegcn",
        {"smooth_gradients": 0.6, "smooth_features": 0.9, "start": "as-published", "smooth_start": "as-published"},
        pipe(smooth_gradients=0.6, smooth_features=0.9, start="as-published", smooth_start="as-published"),
    ),
    Case(
        "pipegcn",
        {"smooth_features": 0.5, "staleness": 2, "smooth_start": "as-published"},
        pipe(smooth_features=0.5, staleness=2, smooth_start="as-published"),
    ),
    Case("sancus-e", {"bound": 2, "clip": 0}, skip(features=epoch_fixed(2)), places="bc"),
    Case("sancus-a", {"bound": 1, "clip": 0}, skip(features=epoch_adaptive(1)), places="bc"),
    Case("sancus-a", {"bound": 4, "clip": 0.01}, skip(features=epoch_adaptive(4), clip=0.01)),
    Case("sancus-h", {"bound": 0.05, "clip": 0}, skip(gap=0.05), places="abcd"),
    Case(
        "sancus-h",
        {"bound": 0.2, "clip": 0.01, "clip_rule": "as-published"},
        skip(gap=0.2, clip=0.01, power=0.5),
    ),
    Case("skip-g", {"bound": 2, "clip": 0}, skip(gradients=epoch_fixed(2)), places="ab"),
    Case("skip-g", {"bound": 1, "clip": 0.01}, skip(gradients=epoch_fixed(1), clip=0.01)),
    Case("exact", {"bits": 8}, lambda links: Policy(links, Coded(8)), places="bc"),
    Case("exact", {"bits": "bf16"}, lambda links: Policy(links, Coded("bf16"))),
    Case("exact", {"bits": 16, "feedback": True}, lambda links: Policy(links, Coded(16, feedback=True))),
    Case("exact", {"bits": "fp16"}, lambda links: Policy(links, Coded("fp16"))),
    Case("exact", {"bits": 4, "feedback": True}, lambda links: Policy(links, Coded(4, feedback=True))),
    Case("exact", {"bits": 2, "bits_gradients": 32}, lambda links: Policy(links, Coded(2, 32))),
    Case(
        "exact",
        {"bits_gradients": 4, "feedback": True, "rounding": "stochastic"},
        lambda links: Policy(links, Coded(32, 4, "stochastic", True, SEED)),
    ),
    Case(
        "exact",
        {"bits": 4, "rounding": "stochastic", "seed": 5},
        lambda links: Policy(links, Coded(4, rounding="stochastic", seed=5)),
    ),
    Case("cagnet", {"bits": 8}, lambda links: Ring(links, Coded(8))),
    Case("cagnet", {"bits": "bf16", "bits_gradients": 4}, lambda links: Ring(links, Coded("bf16", 4))),
    Case("bns", {"rate": 0.4, "bits": 8}, lambda links: BoundaryNodes(links, 0.4, seed=SEED, wire=Coded(8))),
    Case(
        "bns",
        {"rate": 0.4, "bits": 4, "feedback": True, "rounding": "stochastic", "seed": 3},
        lambda links: BoundaryNodes(links, 0.4, seed=3, wire=Coded(4, None, "stochastic", True, 3)),
    ),
    Case(
        "drop-edge",
        {"rate": 0.5, "bits": 8, "feedback": True},
        lambda links: RandomEdges(links, 0.5, "all", SEED, Coded(8, feedback=True)),
    ),
    Case("pipegcn", {"bits": 8}, pipe(wire=Coded(8))),
    Case(
        "pipegcn",
        {"smooth_gradients": 0.9, "staleness": 2, "bits": 4, "feedback": True, "rounding": "stochastic"},
        lambda links: Pipe(links, 2, 0.0, 0.9, wire=Coded(4, None, "stochastic", True, SEED)),
    ),
    Case("sancus-e", {"bound": 1, "clip": 0.01, "bits": 8}, skip(features=epoch_fixed(1), clip=0.01, wire=Coded(8))),
    Case("sancus-h", {"bound": 0.1, "clip": 0, "bits": 4}, skip(gap=0.1, wire=Coded(4))),
    Case("skip-g", {"bound": 1, "clip": 0, "bits": "fp16"}, skip(gradients=epoch_fixed(1), wire=Coded("fp16"))),
]
TRIALS = [(case, PLACES[at]) for number, case in enumerate(CASES) for at in case.places or "abda"[number % 4]]


@pytest.fixture(autouse=True)
def one_thread_per_worker():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """place → graph, book, links; each cut once."""
    folder = tmp_path_factory.mktemp("parts")

    @cache
    def make(workers: int, classes: int, directed: bool):
        graph = community_graph(60, classes=classes, directed=directed)
        book = cut(graph, workers, "random", folder / f"{classes}-{directed}")
        return graph, book, Links(graph, book)

    return lambda place: make(place.workers, place.classes, place.directed)


def config(model: str) -> TrainConfig:
    # Evaluations in between must leave the recipe's state alone.
    shape = ModelConfig(model=model, layers=3, hidden=HIDDEN, dropout=0.0)
    return TrainConfig(model=shape, steps=STEPS, eval_every=11, dtype="float64", optimizer="sgd", lr=LR, seed=SEED)


def first_weights(graph, model: str) -> list[np.ndarray]:
    built = config(model).model.build(graph.num_features, graph.num_classes, SEED, torch.float64)
    return [parameter.detach().numpy() for parameter in built.parameters()]


def run(book, model: str, policy) -> tuple[np.ndarray, dict[str, Any]]:
    """Losses of every step, and the summary, with workers as threads."""
    found = []

    def work(transport):
        watch = (lambda line: found.append(line["loss"])) if transport.rank == 0 else None
        return train(book, config(model), transport, policy=policy, watch=watch)

    results = Hub(book.num_parts).run(work)
    assert len(found) == STEPS
    return np.array(found), results[0].summary


def exact_losses(graph, model: str) -> np.ndarray:
    return np.array(losses(graph, model, first_weights(graph, model), STEPS, LR))


def relative(got, want) -> float:
    return float(np.abs(got / want - 1).max())


@pytest.mark.parametrize(("case", "place"), TRIALS, ids=str)
def test_agrees_with_the_paper(parts, case, place):
    graph, book, links = parts(place)
    name, options = case.asked(place)
    narrow = place.savings == "inherited" and name != "cagnet"
    training = Training(graph, place.model, first_weights(graph, place.model), LR, case.oracle(links), narrow)
    want = np.array(training.run(STEPS))
    got, _ = run(book, place.model, find(name).policy(options))
    # One rounding that falls the other way is seen in coded rows, and nowhere else.
    assert relative(got, want) <= (1e-5 if case.coded else 1e-10)
    exact = exact_losses(graph, place.model)
    if case.options:
        assert relative(want, exact) > 1e-6, "the options have changed nothing"
    else:
        assert relative(want, exact) <= 1e-12 or case.recipe != "exact"


LIMITS = [
    ("bns", {"rate": 1.0}),
    ("boundary-edge", {"rate": 1.0}),
    ("drop-edge", {"rate": 1.0}),
    ("pipegcn", {"staleness": 0}),
    ("sancus-e", {"bound": 0, "clip": 0}),
    ("sancus-a", {"bound": 0, "clip": 0}),
    ("sancus-h", {"bound": 0.0, "clip": 0}),
    ("skip-g", {"bound": 0, "clip": 0}),
    ("exact", {"bits": 32}),
    ("vanilla", {}),
    ("cagnet", {}),
]


@pytest.mark.parametrize(("name", "options"), LIMITS, ids=str)
def test_limits_are_exact(parts, name, options):
    place = PLACES["c" if name == "cagnet" else "a"]
    graph, book, _ = parts(place)
    got, _ = run(book, place.model, find(name).policy(options))
    np.testing.assert_allclose(got, exact_losses(graph, place.model), rtol=0, atol=1e-10)


ALONE = [
    ("bns", {"rate": 0.1, "bits": 2}),
    ("boundary-edge", {"rate": 0.1}),
    ("drop-edge", {"rate": 0.1}),  # it drops as many edges as there are between parts
    ("pipegcn", {"staleness": 2, "smooth_features": 0.9, "start": "as-published"}),
    ("sancus-e", {"bound": 3}),
    ("sancus-h", {"bound": 0.5, "bits": 4}),
    ("skip-g", {"bound": 3, "clip": 0.01}),
    ("cagnet", {"bits": 8}),
]


@pytest.mark.parametrize(("name", "options"), ALONE, ids=str)
def test_one_worker_is_exact(parts, name, options):
    graph, book, _ = parts(Place(1, "sage"))
    got, _ = run(book, "sage", find(name).policy(options))
    np.testing.assert_allclose(got, exact_losses(graph, "sage"), rtol=0, atol=1e-10)


def test_another_seed_draws_other_rows(parts):
    _, book, _ = parts(PLACES["a"])
    mine, _ = run(book, "gcn", find("bns").policy({"rate": 0.4}))
    same, _ = run(book, "gcn", find("bns").policy({"rate": 0.4, "seed": SEED}))
    other, _ = run(book, "gcn", find("bns").policy({"rate": 0.4, "seed": SEED + 1}))
    np.testing.assert_array_equal(mine, same)
    assert relative(other, mine) > 1e-4


def test_coded_ring_stays_near(parts):
    graph, book, _ = parts(PLACES["b"])
    got, _ = run(book, "gcn", find("cagnet").policy({"bits": 8}))
    assert 0 < relative(got, exact_losses(graph, "gcn")) < 0.01


def test_isolated_workers_send_weights_only(parts):
    _, book, _ = parts(PLACES["b"])
    policy = find("bns").policy({"rate": 0.0, "savings": "as-published"})
    sent = run(book, "sage", policy)[1]["bytes_per_step"]
    assert sent["weights"] > 0
    assert {kind for kind, size in sent.items() if size} == {"weights"}


def drawn_aggregations(book, nodes: int, rate: float, steps: int):
    """Per worker: its nodes; mean and standard error of its rows of P, drawn; rows sent."""

    def work(transport):
        part, policy = book.part(transport.rank), find("bns").policy({"rate": rate})
        graph = LocalGraph.from_part(part, transport, book.symmetric, policy=policy, seed=SEED)
        x = torch.eye(nodes, dtype=torch.float64)[torch.from_numpy(np.array(part.nodes))]
        total, squares = torch.zeros_like(x), torch.zeros_like(x)
        for step in range(steps):
            graph.begin(step)
            rows = graph.aggregate(x, "gcn")
            total += rows
            squares += rows * rows
        mean = (total / steps).numpy()
        error = np.sqrt(np.maximum(squares.numpy() / steps - mean**2, 0) / steps)
        return np.array(part.nodes), mean, error, sum(transport.ledger.rows.values())

    return Hub(book.num_parts).run(work)


def test_boundary_sampling_is_unbiased_and_sends_its_share(tmp_path):
    """X = I, so that every element of P is judged: ten thousand aggregations, 5000 by each of two workers."""
    graph = replace(community_graph(24, degree=4.0), edge_attr=None)
    book, rate, steps = cut(graph, 2, "random", tmp_path), 0.3, 5000
    exact, judged, beyond = propagation(graph, "gcn"), 0, 0
    results = drawn_aggregations(book, graph.num_nodes, rate, steps)
    for nodes, mean, error, _ in results:
        off, drawn = np.abs(mean - exact[nodes]), error > 1e-9
        np.testing.assert_allclose(off[~drawn], 0, atol=1e-12)  # edges between inner nodes are always there
        judged += drawn.sum()
        beyond += (off[drawn] > 2 * error[drawn]).sum()
        assert (off[drawn] <= 4 * error[drawn]).all()
    # All readers of a row share its draw: these are some 23 independent trials, of which 5 % are beyond 2 errors.
    assert judged > 80
    assert beyond <= 0.25 * judged
    halo = sum(part.halo for part in book.parts)
    assert abs(sum(result[3] for result in results) / (steps * halo) / rate - 1) < 0.02


@pytest.mark.xfail(strict=True, reason="a link of fewer than 1/rate rows counts rate·m instead of 1 on average")
def test_boundary_sampling_is_unbiased_on_small_links(tmp_path):
    graph = replace(community_graph(24, degree=4.0), edge_attr=None)
    book, steps = cut(graph, 2, "random", tmp_path), 4000
    part, policy = book.part(0), find("bns").policy({"rate": 0.05})
    local = LocalGraph.from_part(part, Hub(2).transport(0), book.symmetric, policy=policy, seed=SEED)
    counted = torch.zeros(steps, local.num_halo, dtype=torch.float64)
    for step in range(steps):
        local.begin(step)
        counted[step, local.edges.picked] = local.edges.halo_scale
    error = counted.std(0) / steps**0.5
    assert ((counted.mean(0) - 1).abs() <= 4 * error).all()


@pytest.mark.parametrize(
    ("name", "options", "why"),
    [
        ("pipegcn", {"staleness": 0, "smooth_features": 0.9}, "fresh rows need no smoothing"),
        ("pipegcn", {"staleness": 0, "start": "as-published"}, "leave start at warm"),
        ("pipegcn", {"smooth_start": "as-published"}, "smooth_start is about smoothing"),
        ("pipegcn", {"staleness": -1}, "staleness counts steps"),
        ("pipegcn", {"smooth_gradients": 1.0}, "below 1"),
        ("exact", {"feedback": True}, "need bits"),
        ("vanilla", {"rounding": "stochastic"}, "need bits"),
        ("exact", {"bits": 3}, "one of 32"),
        ("sancus-e", {"bound": 1, "bits": 8, "feedback": True}, "feedback would grow old"),
        ("cagnet", {"bits": 8, "feedback": True}, "only bits can be set"),
        ("bns", {"rate": 1.5}, "between 0 and 1"),
        ("drop-edge", {"rate": 0.0}, "above 0"),
        ("sancus-a", {"bound": 0.5}, "whole number"),
        ("sancus-h", {"bound": -0.1}, "at least 0"),
        ("bns", {"p": 0.1}, "has no option 'p'"),
    ],
    ids=str,
)
def test_nonsense_is_refused(name, options, why):
    with pytest.raises(InputError, match=why):
        find(name).policy(options)
