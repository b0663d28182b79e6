"""Needed rows: the rows that cross for them, and the rows that the layer before computes."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from sample.scenes import SAMPLERS, aggregation, on_workers, propagation, small_graph

from isthmus.sample import LastLayer
from isthmus.shard import NeededRows, RowSubset

WORKERS, STEPS = 3, 4


def read_rows(context):
    """Return every fourth node, by original id."""
    return (context.whole.nodes % 4 == 0).nonzero().flatten()


@pytest.mark.parametrize("name", ["whole", *SAMPLERS])
def test_only_what_is_read_crosses(name):
    """Both ends of a link agree, and the needed rows get all that the whole drawn graph gives them."""

    def work(context):
        rows, row_norms = read_rows(context), aggregation(context).row_norms
        needed, found = NeededRows(context, rows, drawn=name != "whole"), []
        for step in range(STEPS):
            edges = context.whole if name == "whole" else SAMPLERS[name].draw(context, step, row_norms)
            towards = RowSubset(edges, rows, True, needed=needed)
            full = propagation(edges, "gcn", 48)[rows]
            assert torch.allclose(propagation(towards, "gcn", 48), full, rtol=0, atol=1e-12)
            assert towards.num_halo <= edges.num_halo
            sent = [context.whole.nodes[each.long()].tolist() for each in towards.links.send_rows]
            read = [nodes.tolist() for nodes in towards.links.mirrors.split(towards.halo_nodes)]
            found.append((sent, read, edges.num_halo))
        return found

    results = on_workers(small_graph(directed=True), WORKERS, work)
    crossed = everything = 0
    for step, owner, reader in product(range(STEPS), range(WORKERS), range(WORKERS)):
        assert results[owner][step][0][reader] == results[reader][step][1][owner]
        crossed += len(results[owner][step][0][reader])
        everything += results[reader][step][2] if owner == 0 else 0
    assert 0 < crossed < everything


def test_others_cross_too_where_they_are_asked_for():
    def work(context):
        needed = NeededRows(context, read_rows(context), drawn=False, others=True)
        return needed.links.mirror_counts == context.whole.links.mirror_counts and bool(needed.halo.all())

    assert all(on_workers(small_graph(), WORKERS, work))


def test_sources_are_all_rows_that_anybody_reads():
    def work(context):
        rows = read_rows(context)
        needed = NeededRows(context, rows, drawn=False)
        sources, whole = needed.sources(context.whole, None), context.whole
        assert needed.sources(whole, None) is sources  # made once
        wanted = set(rows.tolist()) | {int(row) for sent in needed.links.send_rows for row in sent}
        for row in rows.tolist():
            wanted |= set(whole.inner.indices[whole.inner.indptr[row] : whole.inner.indptr[row + 1]].tolist())
        return wanted <= set(sources.tolist())

    assert all(on_workers(small_graph(), WORKERS, work))


@pytest.mark.parametrize("sized", [False, True])
def test_thinned_edges_are_right_on_average(sized):
    """Each edge counts 1/p, so the mean over many draws is the graph; a row keeps its budget of edges, or `least`."""
    thin, draws = LastLayer(0.3, least=2), 3000

    def work(context):
        rows, row_norms = read_rows(context), aggregation(context).row_norms if sized else None
        inner = NeededRows(context, rows, drawn=False).inner
        total, kept = torch.zeros(len(rows), inner.num_cols, dtype=torch.float64), 0.0
        for step in range(draws):
            drawn = thin.draw(context, inner, rows, step, row_norms)
            total[drawn.csr.edge_rows, drawn.csr.indices.long()] += drawn.weight
            kept += drawn.csr.num_edges / draws
        degree = inner.indptr.diff().double()
        pattern = torch.zeros_like(total)
        pattern[inner.edge_rows, inner.indices.long()] = 1
        budget = torch.maximum(0.3 * degree, degree.clamp_max(2))
        assert kept == pytest.approx(float(budget.sum()), rel=0.05)
        assert kept < inner.num_edges
        return float((total / draws - pattern).sum(1).abs().max()), float(degree.max())

    for off, degree in on_workers(small_graph(), 2, work):
        assert off < 0.1 * degree
