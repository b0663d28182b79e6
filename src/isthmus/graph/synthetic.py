"""Generate ``synthetic:NAME@SCALE`` from a seed: a graph of the size of a well-known one.

Structure as in blocks.py. A node has the class of its community with a probability that follows from ``homophily``,
else a random one; its features are the centre of its own class plus noise. The features alone say little and the
neighbours say much, but not all: a linear model stays far below a GNN, and a GNN below 100 %.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from urllib.parse import parse_qsl

import numpy as np

from isthmus.errors import InputError
from isthmus.files.scratch import scratch_array
from isthmus.graph.blocks import Layout, Progress, Streams, draw_pairs
from isthmus.graph.csr import to_csr, with_reverses
from isthmus.graph.graph import Graph
from isthmus.graph.presets import PRESETS, Preset
from isthmus.graph.words import draw_words

ROWS = 1 << 16  # feature rows drawn at a time
OPTIONS = {"seed": int, "homophily": float, "signal": float, "dtype": str, "labelled": float}


def synthetic(spec: str, progress: Progress | None = None) -> Graph:
    """Make the graph ``NAME[@SCALE][?option=value&…]``; call ``progress(what, done, total)`` now and then."""
    preset, seed = parse(spec)
    note = progress or (lambda what, done, total: None)
    rng = Streams(seed)
    layout = Layout.draw(preset, rng)
    pairs = draw_pairs(preset, layout, rng, note)
    note("sorting edges", 0, 1)
    csr = to_csr(with_reverses(pairs), preset.nodes)
    del pairs
    if preset.multilabel:
        y = draw_label_sets(preset, layout, rng)
    else:
        y = draw_labels(preset, layout, rng, purity(preset.homophily, layout.class_share))
    x = draw_words(preset, y, rng) if preset.words else draw_rows(preset, y, rng, note)
    train, val, test = draw_masks(preset, layout, y, rng)
    if not preset.all_labelled:
        y[~(train | val | test)[:, 0]] = -1
    edges = len(csr.indices)
    notes = () if edges == preset.edges else (f"{edges:,} edges instead of {preset.edges:,}: too few nodes for more",)
    return Graph(csr.indptr, csr.indices, x, y, train, val, test, preset.classes, f"synthetic:{spec}", notes=notes)


def parse(spec: str) -> tuple[Preset, int]:
    """Parse ``NAME[@SCALE][?option=value&…]`` into the preset at that scale, and the seed."""
    place, _, query = spec.partition("?")
    name, _, scale = place.partition("@")
    if name not in PRESETS:
        raise InputError(f"no synthetic graph {name!r}: take one of {', '.join(PRESETS)}")
    given: dict = {}
    for key, text in parse_qsl(query, keep_blank_values=True):
        if key not in OPTIONS:
            raise InputError(f"synthetic graphs have no option {key!r}: the options are {', '.join(OPTIONS)}")
        try:
            given[key] = OPTIONS[key](text)
        except ValueError:
            kind = OPTIONS[key].__name__
            raise InputError(
                f"{key}={text!r} is not of type {kind}: write e.g. {name}@0.1?seed=3&homophily=0.6"
            ) from None
    seed = given.pop("seed", 0)
    if not 0 <= seed < 2**63:
        raise InputError(f"seed {seed} is out of range: give a number from 0 to 2^63 - 1")
    return replace(scaled(PRESETS[name], name, scale or "1"), **given), seed


def scaled(preset: Preset, name: str, text: str) -> Preset:
    """Scale nodes, edges and splits; the mean degree stays, as far as so few nodes allow it."""
    try:
        scale = float(text)
    except ValueError:
        scale = math.nan
    if not 0 < scale * preset.nodes < 2**31:
        raise InputError(f"scale {text!r} is not a number that leaves 1 to 2^31 nodes: write e.g. synthetic:{name}@0.1")
    nodes = max(round(preset.nodes * scale), 8 * preset.classes)
    degree = min(preset.edges / preset.nodes, nodes / 16)
    train, val, _ = (max(round(part * nodes / preset.nodes), 1) for part in preset.split)
    test = round(sum(preset.split) * nodes / preset.nodes) - train - val
    return replace(preset, nodes=nodes, edges=2 * round(nodes * degree / 2), split=(train, val, test))


def purity(homophily: float, share: np.ndarray) -> float:
    """Return the probability p that a node has the class of its community.

    It is chosen so that ``homophily`` of a node's near edges (those to its community and class) join equal labels:
    homophily = p² + q(1 − p²) with q = Σ share², the probability that a random pair is equal.
    """
    q = float(np.square(share).sum())
    if homophily < q:
        raise InputError(f"homophily {homophily:g} is below that of random labels: choose it between {q:.2f} and 1")
    return math.sqrt((homophily - q) / (1 - q))


def draw_labels(preset: Preset, layout: Layout, rng: Streams, purity: float) -> np.ndarray:
    """Draw one class per node, int64 [N]: that of its community with probability ``purity``, else a random one."""
    draw = rng("labels")
    home = np.repeat(layout.community_class, np.diff(layout.community_bounds))
    stray = draw.choice(preset.classes, size=preset.nodes, p=layout.class_share)
    y = np.empty(preset.nodes, np.int64)
    y[layout.ids] = np.where(draw.random(preset.nodes) < purity, home, stray)
    return y


def draw_label_sets(preset: Preset, layout: Layout, rng: Streams) -> np.ndarray:
    """Draw several labels per node, uint8 [N, C].

    A community has a set of labels, half of it taken from its class; each label of a node follows the community with
    probability ``homophily``, else its overall rate.
    """
    draw = rng("labels")
    rate = 0.5 * (np.arange(preset.classes) + 1.0) ** -0.5  # a few common labels, many rare ones
    by_class = draw.random((preset.classes, preset.classes)) < rate
    own = draw.random((len(layout.community_class), preset.classes)) < rate
    home = np.where(draw.random(own.shape) < 0.5, by_class[layout.community_class], own)
    y = np.empty((preset.nodes, preset.classes), np.uint8)
    for community, (a, b) in enumerate(pairwise(layout.community_bounds)):
        shape = (b - a, preset.classes)
        follow = draw.random(shape, np.float32) < preset.homophily
        y[layout.ids[a:b]] = np.where(follow, home[community], draw.random(shape, np.float32) < rate)
    return y


def draw_rows(preset: Preset, y: np.ndarray, rng: Streams, note: Progress) -> np.ndarray:
    """Draw features [N, F]: the centre of the class, or the sum of the labels' centres, plus noise of variance 1."""
    centres = rng("centres").standard_normal((preset.classes, preset.features), np.float32)
    centres *= preset.signal / np.linalg.norm(centres, axis=1, keepdims=True)
    x = scratch_array((preset.nodes, preset.features), preset.dtype)
    for block, a in enumerate(range(0, preset.nodes, ROWS)):
        label = y[a : a + ROWS]
        rows = rng("rows", block).standard_normal((len(label), preset.features), np.float32)
        rows += label.astype(np.float32) @ centres if preset.multilabel else centres[label]
        x[a : a + ROWS] = rows
        note("drawing features", a + len(label), preset.nodes)
    return x


def draw_masks(preset: Preset, layout: Layout, y: np.ndarray, rng: Streams) -> list[np.ndarray]:
    """Draw training, validation and test masks, bool [N, 1] each, in the sizes of the split.

    With ``labelled`` below 1 their nodes lie in that share of the communities, or in more if these are too small.
    """
    order = rng("split").permutation(preset.nodes)
    if preset.labelled < 1:
        sizes, turn = np.diff(layout.community_bounds), rng("field").permutation(len(layout.community_class))
        enough = int(np.searchsorted(np.cumsum(sizes[turn]), sum(preset.split))) + 1
        field = np.zeros(len(turn), bool)
        field[turn[: max(enough, round(preset.labelled * len(turn)))]] = True
        inside = np.zeros(preset.nodes, bool)
        inside[layout.ids] = np.repeat(field, sizes)
        order = order[inside[order]]
    if preset.per_class:
        each = max(preset.split[0] // preset.classes, 1)
        first = np.concatenate([order[y[order] == label][:each] for label in range(preset.classes)])
        order = np.concatenate([first, order[~np.isin(order, first)]])
    masks, a = [], 0
    for size in preset.split:
        mask = np.zeros((preset.nodes, 1), bool)
        mask[order[a : a + size]] = True
        masks.append(mask)
        a += size
    return masks
