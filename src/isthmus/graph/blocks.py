"""Draw the structure of a synthetic graph: a degree-corrected block model with communities inside classes.

A node of degree d has d/2 half-edges of three kinds: to its community, to its class, and (open nodes only) to anywhere.
Each half-edge is joined to a random one of its kind and group, so degrees follow the power law in every group, METIS
finds real locality, and the halos of its parts come close to the published ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from isthmus.graph.csr import pack
from isthmus.graph.presets import Preset

BLOCK = 1 << 22  # half-edges drawn at a time
FULL = 0.5  # a node has edges to at most this share of its community or class; the excess goes one level up
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Streams:
    """Independent counter-based random streams, one per (purpose, block), so the order of calls changes no number."""

    seed: int

    def __call__(self, purpose: str, block: int = 0) -> np.random.Generator:
        word = int.from_bytes(purpose.encode()[:8], "little")
        return np.random.Generator(np.random.Philox(key=[self.seed, word], counter=[0, 0, 0, block]))


@dataclass(frozen=True)
class Layout:
    """The position, class and community of every node: positions run by class, then community; ids are shuffled."""

    ids: np.ndarray  # int32 [N]: id of the node at each position
    class_bounds: np.ndarray  # int64 [C+1], positions
    community_bounds: np.ndarray  # int64 [K+1], positions
    community_class: np.ndarray  # int64 [K]

    @classmethod
    def draw(cls, preset: Preset, rng: Streams) -> Layout:
        share = (np.arange(preset.classes) + 2.0) ** -0.7  # classes of real graphs differ in size by about ten
        class_bounds = bounds(share, preset.nodes)
        communities, owner = [np.zeros(1, np.int64)], []
        draw = rng("layout")
        for k, (a, b) in enumerate(pairwise(class_bounds)):
            count = max(1, round((b - a) / preset.community))
            communities.append(a + bounds(draw.lognormal(sigma=0.5, size=count), b - a)[1:])
            owner.append(np.full(count, k))
        ids = rng("ids").permutation(preset.nodes).astype(np.int32)
        return cls(ids, class_bounds, np.concatenate(communities), np.concatenate(owner))

    @property
    def class_share(self) -> np.ndarray:
        return np.diff(self.class_bounds) / len(self.ids)


def bounds(weight: np.ndarray, total: int) -> np.ndarray:
    """Cut ``total`` into len(weight) ranges in proportion to the weights; return their bounds, int64 [len+1]."""
    ends = np.concatenate([[0.0], np.cumsum(weight)])
    return np.rint(ends / ends[-1] * total).astype(np.int64)


def half_edges(preset: Preset, layout: Layout, rng: Streams) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the expected number of half-edges [N] of every position to its community, its class, and anywhere."""
    n = preset.nodes
    weight = (1 - rng("degree").random(n)) ** (-1 / (preset.exponent - 1))
    np.minimum(weight, preset.hub * weight.mean(), out=weight)
    degree = np.minimum(weight * (preset.edges / weight.sum()), n / 4)
    is_open = rng("open").random(n) < preset.open_share
    far = np.where(is_open, degree * min(preset.far * degree.sum() / max(degree[is_open].sum(), 1), 0.9), 0.0)
    community = np.diff(layout.community_bounds)
    inside = np.minimum(degree * preset.inside, np.repeat(FULL * community, community))
    inside = np.minimum(inside, degree - far)
    classes = np.diff(layout.class_bounds)
    near = np.minimum(degree - far - inside, np.repeat(FULL * classes, classes))
    return inside / 2, near / 2, (degree - inside - near) / 2


def draw_pairs(preset: Preset, layout: Layout, rng: Streams, note: Progress) -> np.ndarray:
    """Draw the distinct undirected edges as packed keys: larger id in the high half, smaller id in the low half."""
    wanted = preset.edges // 2
    levels = half_edges(preset, layout, rng)
    groups = (layout.community_bounds, layout.class_bounds, np.array([0, preset.nodes]))
    pairs, fresh = np.empty(0, np.int64), 1.0  # fresh: share of the last turn's pairs that were new edges
    for turn in range(8):  # half-edges joined twice, or to themselves, are drawn again
        missing = wanted - len(pairs)
        if missing <= 0:
            break
        note("drawing edges", len(pairs), wanted)
        # Later turns draw more than is missing, because few half-edges find few partners; the surplus is dropped below.
        share, found = (1.5 if turn else 1.0) * missing / wanted / max(fresh, 0.1), [pairs]
        for level, (expected, group) in enumerate(zip(levels, groups, strict=True)):
            # Random rounding keeps the expectation; in the first turn every node keeps one edge to its community.
            stubs = np.floor(expected * share + rng("round", 8 * turn + level).random(preset.nodes)).astype(np.int64)
            if turn == level == 0:
                np.maximum(stubs, 1, out=stubs)
            found.extend(meet(layout.ids, stubs, group, rng, f"meet{turn}{level}"))
        pairs = np.concatenate(found)
        drawn = len(pairs) - len(found[0])
        found.clear()
        pairs.sort()
        pairs = pairs[np.concatenate([[True], pairs[1:] != pairs[:-1]])]
        fresh = (len(pairs) - (wanted - missing)) / max(drawn, 1)
    if len(pairs) > wanted:  # ids are shuffled, so evenly spaced pairs are as good as random ones
        keep = np.ones(len(pairs), bool)
        keep[np.linspace(0, len(pairs) - 1, len(pairs) - wanted).astype(np.int64)] = False
        pairs = pairs[keep]
    return pairs


def meet(ids: np.ndarray, stubs: np.ndarray, group: np.ndarray, rng: Streams, purpose: str) -> Iterator[np.ndarray]:
    """Join each of the stubs[p] half-edges of position p to a random one of p's group; yield packed keys in blocks."""
    owner = np.repeat(ids, stubs)
    start = np.concatenate([[0], np.cumsum(stubs)])[group]  # group g has the half-edges start[g]:start[g+1]
    for block, a in enumerate(range(0, len(owner), BLOCK)):
        b = min(a + BLOCK, len(owner))
        first, last = np.searchsorted(start, a, "right") - 1, np.searchsorted(start, b, "left")
        edges = np.clip(start[first : last + 1], a, b)
        low = np.repeat(start[first:last], np.diff(edges))
        width = np.repeat(np.diff(start[first : last + 1]), np.diff(edges))
        other = owner[low + (rng(purpose, block).random(b - a) * width).astype(np.int64)]
        mine = owner[a:b]
        keys = pack(np.minimum(mine, other), np.maximum(mine, other))
        yield keys[mine != other]
