"""Cut a graph for the cover cut: of several cuts by METIS keep the one whose covers send the fewest rows.

METIS minimises edges or halo rows, and knows nothing of covers; both objectives and a few seeds differ by up to a
seventh in the rows of their covers. A small graph is therefore cut several times, a large one once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from isthmus.graph.graph import Graph
from isthmus.kernels import Csr
from isthmus.partition.border import Layout, Relabelling, find_border, rows_of
from isthmus.partition.cover import gathered_targets, halo_cover
from isthmus.partition.methods import CutOptions, assign

MOST_TRIES = 8
EDGES = 8_000_000  # that METIS may read in all its tries, after the first


def assign_for_cover(
    graph: Graph, parts: int, options: CutOptions, report: Callable[[int, int], None]
) -> tuple[np.ndarray, CutOptions]:
    """Return the owner of every node, int32 [N], and the options of the cut that was kept."""
    tries = max(1, min(MOST_TRIES, EDGES // max(1, graph.num_edges)))
    best: tuple[int, np.ndarray, CutOptions] | None = None
    for k in range(tries):
        tried = replace(options, objective=("cut", "vol")[k % 2], seed=options.seed + 2 * (k // 2))
        owner = assign(graph, parts, "metis", tried)
        rows = cover_rows(graph, owner, parts) if tries > 1 else 0
        if best is None or rows < best[0]:
            best = rows, owner, tried
        report(k + 1, tries)
    assert best is not None
    return best[1], best[2]


def cover_rows(graph: Graph, owner: np.ndarray, parts: int) -> int:
    """Return how many rows an exchange sends with minimum covers between these owners."""
    layout = Layout(Relabelling.of([np.flatnonzero(owner == k) for k in range(parts)]))
    return sum(_rows_into(graph, layout, k) for k in range(parts))


def _rows_into(graph: Graph, layout: Layout, k: int) -> int:
    border, ranges = find_border(graph, layout, k), layout.labels.ranges
    place = np.full(graph.num_nodes, -1, np.int32)
    place[border.halo] = np.arange(len(border.halo), dtype=np.int32)
    counts, columns = [np.zeros(1, np.int64)], [np.zeros(0, np.int32)]
    for _, count, rows, sources, _ in rows_of(graph, layout, layout.labels.old[ranges[k] : ranges[k + 1]], k):
        outside = place[sources] >= 0
        counts.append(np.bincount(rows[outside], minlength=count))
        columns.append(place[sources[outside]])
    ends = torch.from_numpy(np.cumsum(np.concatenate(counts)))
    halo, ptr = Csr(ends, torch.from_numpy(np.concatenate(columns)), len(border.halo)), border.ptr.tolist()
    covered = halo_cover(halo, ptr, torch.zeros(layout.labels.num_parts, dtype=torch.int64))
    return int(covered.sum()) + sum(map(len, gathered_targets(halo, ptr, covered)))
