r"""Measure the variance of sampled aggregations around the whole one, against the rows they fetch, and by theory.

With Z = P X on the whole graph and Z̃ on a drawn one, the *variance* of a sampler is the relative error of one draw,

.. math:: \sum_i E\|\tilde Z_i - Z_i\|^2 \,/\, \sum_i \|Z_i\|^2

over the nodes i of all workers: the sum of a part that inner edges cause and one that halo edges cause.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm import FORWARD, Where
from isthmus.errors import InputError
from isthmus.kernels import SparseMatrix, WaterFilling, Weights
from isthmus.sample.boundary import Boundary
from isthmus.sample.neighbours import Neighbours
from isthmus.sample.optimal_boundary import OptimalBoundary
from isthmus.sample.random_edges import RandomEdges
from isthmus.sample.row_norms import NormRecorder, RowNorms
from isthmus.sample.schedule import Sampler
from isthmus.shard.draw_context import DrawContext
from isthmus.shard.shard import Shard

Progress = Callable[[str, int, int], None]

SAMPLERS: dict[str, Callable[[float], Sampler]] = {
    "independent": lambda rate: Neighbours(rate),
    "coupled": lambda rate: Neighbours(rate, coupled=True),
    "optimal-boundary": lambda rate: OptimalBoundary(rate),
    "boundary": lambda rate: Boundary(rate),
    "boundary-edge": lambda rate: RandomEdges(rate, "boundary"),
}
PAIRS = {"coupled_to_independent": ("coupled", "independent"), "optimal_to_boundary": ("optimal-boundary", "boundary")}


@dataclass(frozen=True)
class Question:
    """The samplers to compare, the rows to compare them on, and the number of draws."""

    rate: float = 0.1
    draws: int = 200
    width: int = 64
    norm: str = "mean"
    features: str = "own"
    """``own``: the graph's features in random directions, through relu; ``random``: rows of log-normal lengths."""
    samplers: tuple[str, ...] = tuple(SAMPLERS)
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise InputError(f"rate is the share that is kept: it must be above 0 and at most 1, not {self.rate}")
        for name, least in (("draws", 2), ("width", 1)):
            if getattr(self, name) < least:
                raise InputError(f"{name} must be at least {least}, not {getattr(self, name)}")
        for name, known in (("norm", ("mean", "gcn", "sum")), ("features", ("own", "random"))):
            if getattr(self, name) not in known:
                raise InputError(f"unknown {name} {getattr(self, name)!r}: use one of {', '.join(known)}")
        for name in self.samplers:
            if name not in SAMPLERS:
                raise InputError(f"unknown sampler {name!r}: use some of {','.join(SAMPLERS)}")

    def rows(self, x: Tensor | SparseMatrix, part: int) -> Tensor:
        """Return the rows to aggregate for a part's nodes with features x, [n, width]."""
        if self.features == "own":
            return projected(x, self.width, self.seed)
        return lognormal(len(x), self.width, kernels.stream(self.seed, part) >> 1)


def projected(x: Tensor | SparseMatrix, width: int, seed: int) -> Tensor:
    """Return relu(X R), [n, width], with the same random R on every worker: like a first layer on features [n, F]."""
    directions = torch.randn(x.shape[1], width, generator=torch.Generator().manual_seed(seed), dtype=x.dtype)
    return (x @ (directions / x.shape[1] ** 0.5)).relu()


def lognormal(count: int, width: int, seed: int) -> Tensor:
    """Return rows in random directions, of lengths e^g with g normal, [count, width]."""
    draw = torch.Generator().manual_seed(seed)
    rows = torch.nn.functional.normalize(torch.randn(count, width, generator=draw))
    return rows * torch.randn(count, 1, generator=draw).exp()


@dataclass(frozen=True)
class Aggregation:
    """The aggregation P [X; X_halo] on one worker, with all rows and their norms at hand."""

    context: DrawContext
    norm: str
    x: Tensor  # [n, F]
    halo: Tensor  # [h, F]
    row_norms: RowNorms

    @staticmethod
    def of(context: DrawContext, x: Tensor, norm: str) -> Aggregation:
        """Fetch halo rows and their norms from their owners; every worker calls it at the same time."""
        whole, links = context.whole, context.whole.links
        halo = links.pull(x, context.transport, Where("rows", FORWARD, 0))
        row_norms = NormRecorder(0)
        row_norms.record(x, None, norm, whole.norm(norm, x.dtype).source)
        return Aggregation(context, norm, x, halo, row_norms.share(links, context.transport))

    @property
    def whole(self) -> Shard:
        return self.context.whole

    def inner_half(self, edges: Shard) -> Tensor:
        """Return the sum over inner edges (and self loops), [n, F]."""
        return edges.aggregate_inner(self.x, edges.norm(self.norm, self.x.dtype))

    def halo_half(self, edges: Shard) -> Tensor:
        """Return the sum over halo edges, [n, F]."""
        out = self.x.new_zeros(self.whole.num_inner, self.x.shape[1])
        rows = self.halo if edges.picked is None else self.halo[edges.picked]
        edges.aggregate_halo(rows, edges.norm(self.norm, self.x.dtype), out)
        return out

    def neighbour_sums(self, inner: Tensor, halo: Tensor, weights: tuple[Tensor | None, Tensor | None]) -> Tensor:
        """Return target_i² Σ_j w_ij v_j over the inner and over the halo neighbours of each node, float64 [n, 2]."""
        sides = zip((self.whole.inner, self.whole.halo), (inner, halo), weights, strict=True)
        sums = torch.cat([kernels.aggregate(csr, v[:, None], Weights(edge=w)) for csr, v, w in sides], dim=1)
        target = self.whole.norm(self.norm, torch.float64).target
        return sums if target is None else sums * target[:, None].square()

    def fetched(self, sampler: Sampler) -> float:
        """Return the number of halo rows that all workers together are expected to fetch."""
        row_norms = replace(self.row_norms, plans={})  # so that plans for rates that are only tried are not kept
        return float(self.over_workers(sampler.inclusion(self.context, row_norms).sum()))

    def over_workers(self, tensor: Tensor) -> Tensor:
        """Return the sum over the workers, float64."""
        return self.context.transport.all_reduce(tensor.double().clone(), Where("variance", "reduce", 0, "ids"))


def measure(z: Aggregation, sampler: Sampler, draws: int, progress: Callable[[int], None]) -> Tensor:
    """Return per draw the rows fetched and Σ_i ‖Z̃_i − Z_i‖² by inner edges, halo edges and all; float64 [draws, 4]."""
    whole_inner, whole_halo = z.inner_half(z.whole), z.halo_half(z.whole)
    found = torch.zeros(draws, 4, dtype=torch.float64)
    for step in range(draws):
        progress(step)
        drawn = sampler.draw(z.context, step, z.row_norms)
        halo, inner = z.halo_half(drawn) - whole_halo, torch.zeros_like(whole_inner)
        if drawn.inner is not z.whole.inner:
            inner = z.inner_half(drawn) - whole_inner
        squares = [float(error.double().square().sum()) for error in (inner, halo, inner + halo)]
        found[step] = torch.tensor([drawn.num_halo, *squares], dtype=torch.float64)
    progress(draws)
    return z.over_workers(found)


Chances = tuple[Tensor, Tensor]  # p of the inner and of the halo edges, float64


def neighbour_chances(z: Aggregation, sampler: Neighbours) -> Chances:
    whole, levels = z.whole, sampler.levels(z.context, z.row_norms)
    inner = kernels.edge_probability(whole.inner, WaterFilling(levels.level, levels.inner))
    return inner, kernels.edge_probability(whole.halo, WaterFilling(levels.level, levels.halo))


def chances(z: Aggregation, sampler: Sampler) -> Chances | None:
    """Return the probabilities of the edges; None if a node's edges are not drawn independently, as in BNS-GCN."""
    certain = torch.ones(z.whole.inner.num_edges, dtype=torch.float64)
    match sampler:
        case Neighbours():
            return neighbour_chances(z, sampler)
        case OptimalBoundary():
            return certain, sampler.inclusion(z.context, z.row_norms)[z.whole.halo.indices.long()]
        case RandomEdges(rate=rate, among="boundary"):
            return certain, torch.full((z.whole.halo.num_edges,), rate, dtype=torch.float64)
    return None


def expected(z: Aggregation, p: Chances) -> Tensor:
    """Return Σ_ij (1/p_ij − 1) ‖y_ij‖² (eq. 16) over the inner and over the halo edges of all workers, float64 [2]."""
    weights = 1 / p[0] - 1, 1 / p[1] - 1
    return z.over_workers(z.neighbour_sums(z.row_norms.inner[z.norm], z.row_norms.halo[z.norm], weights).sum(0))


def lemma3(z: Aggregation, sampler: Neighbours) -> dict[str, float]:
    """Return Σ_ij a_j (1/p_ij − 1) ‖y_ij‖² for p = ε and for the sampler's p, and their difference by eq. 20.

    Eq. 20 assumes p ∝ √a_j ‖y_ij‖: where such a p exceeds 1, it promises more than probabilities can give.
    """
    a = torch.tensor([sampler.inner_weight, 1.0], dtype=torch.float64)
    inner, halo, all_edges = z.row_norms.inner[z.norm], z.row_norms.halo[z.norm], (None, None)
    squares = z.neighbour_sums(inner, halo, all_edges) @ a
    roots = z.neighbour_sums(inner.sqrt(), halo.sqrt(), all_edges) @ a.sqrt()
    degree = z.neighbour_sums(torch.ones_like(inner), torch.ones_like(halo), all_edges).sum(1)  # times target²
    eq20 = squares - roots.square() / torch.where(degree == 0, torch.ones_like(degree), degree)
    sums = z.over_workers(torch.stack([(1 - sampler.rate) * squares.sum(), eq20.sum()])) / sampler.rate
    importance = float(a @ expected(z, neighbour_chances(z, sampler)))
    uniform, promised = sums.tolist()
    return {"uniform": uniform, "importance": importance, "difference": uniform - importance, "eq20": promised}


def rate_for(z: Aggregation, make: Callable[[float], Sampler], rows: float, first: float) -> float:
    """Return the rate at which a sampler should fetch ``rows`` rows, to a thousandth; ``first`` is tried first."""
    low, high, rate = 0.0, 1.0, first
    for _ in range(40):
        found = z.fetched(make(rate))
        if abs(found - rows) <= 1e-3 * rows:
            break
        low, high = (rate, high) if found < rows else (low, rate)
        rate = (low + high) / 2
    return rate


@dataclass(frozen=True)
class Split:
    """A relative variance, with the parts that inner and halo edges cause."""

    inner: float
    halo: float
    all: float


@dataclass(frozen=True)
class Trial:
    """The result of a sampler at one rate. Rows are shares of all halo rows."""

    sampler: str
    rate: float
    rows: float
    expected_rows: float
    variance: Split
    error: Split  # the standard error of each
    theory: Split | None

    def over(self, other: Trial) -> dict[str, float | None]:
        """Return rows and variances as multiples of another sampler's; None where that has none."""
        pairs = {
            "rows": (self.rows, other.rows),
            "halo_variance": (self.variance.halo, other.variance.halo),
            "variance": (self.variance.all, other.variance.all),
        }
        return {name: one / base if base else None for name, (one, base) in pairs.items()}


def trial(z: Aggregation, name: str, rate: float, draws: int, unit: float, progress: Progress) -> Trial:
    """Measure a sampler; variances are in multiples of ``unit``."""
    sampler, halo_rows = SAMPLERS[name](rate), float(z.over_workers(torch.tensor(z.whole.num_halo)))
    found = measure(z, sampler, draws, lambda done: progress(f"{name} at rate {rate:.3g}, draw", done, draws))
    rows, *mean = found.mean(0).tolist()
    error, p, theory = (found.std(0)[1:] / draws**0.5 / unit).tolist(), chances(z, sampler), None
    if p is not None:
        inner, halo = (expected(z, p) / unit).tolist()
        theory = Split(inner, halo, inner + halo)
    variance = Split(*(value / unit for value in mean))
    return Trial(name, rate, rows / halo_rows, z.fetched(sampler) / halo_rows, variance, Split(*error), theory)


def compare(z: Aggregation, asked: Question, progress: Progress = lambda what, done, total: None) -> dict[str, Any]:
    """Compare all samplers at one rate, then each at the rate where it fetches as many rows as `independent` does."""
    halo_rows = int(z.over_workers(torch.tensor(z.whole.num_halo)))
    if halo_rows == 0:
        raise InputError("no part reads a row of another, so there is nothing to sample: cut the graph into more parts")
    unit = float(z.over_workers((z.inner_half(z.whole) + z.halo_half(z.whole)).double().square().sum()))
    if unit == 0:
        raise InputError("all aggregated rows are zero: look at the features, or ask for --features random")
    same_rate = {name: trial(z, name, asked.rate, asked.draws, unit, progress) for name in asked.samplers}
    paper, same_rows = Neighbours(asked.rate), {}
    for name in asked.samplers:
        rate = rate_for(z, SAMPLERS[name], z.fetched(paper), asked.rate)
        same_rows[name] = same_rate[name] if rate == asked.rate else trial(z, name, rate, asked.draws, unit, progress)
    result: dict[str, Any] = {
        **asdict(asked),
        "halo_rows": halo_rows,
        "equal_rate": [asdict(each) for each in same_rate.values()],
        "equal_traffic": [asdict(each) for each in same_rows.values()],
        "lemma3": {name: value / unit for name, value in lemma3(z, paper).items()},
    }
    at = {"equal_rate": same_rate, "equal_traffic": same_rows}
    for name, (one, other) in PAIRS.items():
        if {one, other} <= set(asked.samplers):
            result[name] = {when: found[one].over(found[other]) for when, found in at.items()}
    return result
