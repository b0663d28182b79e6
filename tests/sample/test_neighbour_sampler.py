"""Mini-batches: what is drawn agrees with a literal oracle, on whole graphs and on parts, and has the right chances."""

from __future__ import annotations

import math
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from graphs import community_graph
from oracle.mini_batch import mini_batch
from torch import Tensor

from isthmus.errors import InputError
from isthmus.graph.graph import Graph
from isthmus.partition import Book, partition
from isthmus.sample import Blocks, NeighbourSampler, Numbering, Structure

DRAWS = 4000
SAMPLERS = {"uniform": {}, "replace": {"replace": True}, "labor": {"method": "labor"}}


def adjacency(graph: Graph) -> dict[int, list[int]]:
    return {v: graph.indices[graph.indptr[v] : graph.indptr[v + 1]].tolist() for v in range(graph.num_nodes)}


def edges_of(blocks: Blocks) -> list[list[tuple[int, int]]]:
    """Return the edges (source, target) of every hop in original ids, seeds' hop first."""
    hops = []
    for layer in reversed(blocks.layers):
        source, target = blocks.original[layer.csr.indices.long()], blocks.original[layer.csr.edge_rows]
        hops.append(list(zip(source.tolist(), target.tolist(), strict=True)))
    return hops


def cut(graph: Graph, parts: int, folder: Path, method: str = "random") -> Book:
    return partition(graph, parts, method, out=folder / f"parts-{parts}-{method}")


@pytest.mark.parametrize("method", SAMPLERS)
@pytest.mark.parametrize("directed", [False, True])
def test_batches_are_those_of_the_oracle(method, directed):
    graph = community_graph(nodes=60, degree=7.0, directed=directed)
    sampler = NeighbourSampler((3, 2, -1), seed=4, **SAMPLERS[method])
    structure, numbering = Structure.of_graph(graph), Numbering(60)
    for step, seeds in enumerate([[5, 1, 30], [], [59], list(range(60))]):
        blocks = sampler.blocks(structure, torch.tensor(seeds, dtype=torch.int64), step, numbering)
        nodes, hops = mini_batch(adjacency(graph), seeds, [3, 2, -1], 4, step, method)
        assert blocks.original.tolist() == nodes
        assert edges_of(blocks) == hops
        assert blocks.degree.tolist() == graph.degree[nodes].tolist()


@pytest.mark.parametrize("method", [*SAMPLERS, "weighted"])
@pytest.mark.parametrize("parts", [1, 2, 3, 4])
def test_every_partition_draws_the_same(method, parts, tmp_path):
    graph = community_graph(nodes=60, degree=7.0, directed=True)
    weighted = method == "weighted"
    if weighted:
        weights = np.random.default_rng(0).random(graph.num_edges, dtype=np.float32)
        graph = Graph(**{**vars(graph), "edge_attr": weights})
    sampler = NeighbourSampler((3, 4), seed=1, **SAMPLERS.get(method, {"method": "weighted"}))
    book = cut(graph, parts, tmp_path)
    of_graph, of_book = Structure.of_graph(graph, data=weighted), Structure.of_book(book, data=weighted)
    original = torch.from_numpy(np.concatenate([book.part(k).nodes for k in range(parts)]))
    seeds = torch.tensor([3, 17, 44])  # book ids
    here = sampler.blocks(of_book, seeds, 9)
    whole = sampler.blocks(of_graph, original[seeds], 9)
    assert torch.equal(here.original, whole.original)
    assert torch.equal(original[here.nodes], here.original)
    assert edges_of(here) == edges_of(whole)
    for mine, its in zip(here.layers, whole.layers, strict=True):
        assert torch.equal(mine.scale, its.scale)
        assert weighted == (mine.weight is not None)
        assert mine.weight is None or torch.equal(mine.weight, its.weight)
    by_owners(sampler, book, here, parts, weighted)


def by_owners(sampler: NeighbourSampler, book: Book, here: Blocks, parts: int, weighted: bool) -> None:
    """Expand the same batch at the owners of its nodes, from one part each."""
    owners = [Structure.of_book(book, range(k, k + 1), data=weighted) for k in range(parts)]
    numbering = Numbering(book.nodes)
    numbering.start(here.nodes[: here.num_seeds])
    for hop, layer in enumerate(reversed(here.layers)):
        frontier = numbering.nodes.clone()
        owner = torch.searchsorted(torch.tensor(book.ranges), frontier, right=True) - 1
        pieces = [sampler.expand(owners[q], node[None], 9, hop) for q, node in zip(owner, frontier, strict=True)]
        indptr = torch.cat([torch.zeros(1, dtype=torch.int64), torch.tensor([len(p[1]) for p in pieces]).cumsum(0)])
        csr = numbering.add(indptr, torch.cat([piece.neighbours for piece in pieces]))
        assert torch.equal(csr.indices, layer.csr.indices)
    assert torch.equal(numbering.nodes, here.nodes)


def test_several_parts_of_many(tmp_path):
    graph = community_graph(nodes=60, degree=7.0)
    book = cut(graph, 4, tmp_path)
    some = Structure.of_book(book, range(1, 3))
    neighbours = adjacency(graph)
    for row in range(some.num_rows):
        mine = some.pattern.indices[some.pattern.indptr[row] : some.pattern.indptr[row + 1]].long()
        assert some.original[mine].tolist() == neighbours[int(some.original[row])]
        assert torch.equal(some.original[mine], Structure.of_book(book).original[some.nodes[mine]])
    with pytest.raises(InputError, match="ask its owner"):
        some.rows_of(torch.tensor([0]))


def star(neighbours: int) -> Graph:
    """Return a graph in which node 0 reads all others, which read nothing."""
    graph = community_graph(nodes=neighbours + 1)
    indptr = np.concatenate([[0], np.full(neighbours + 1, neighbours)])
    indices = np.arange(1, neighbours + 1, dtype=np.int32)
    return Graph(**{**vars(graph), "indptr": indptr, "indices": indices, "symmetric": False, "edge_attr": None})


def draws_of(structure: Structure, sampler: NeighbourSampler, steps: int = DRAWS) -> tuple[Tensor, Tensor]:
    """Return how often each neighbour of node 0 was drawn at each step, and what it counted: [steps, columns]."""
    often = torch.zeros(steps, structure.pattern.num_cols)
    counts = torch.zeros(steps, structure.pattern.num_cols, dtype=torch.float64)
    for step in range(steps):
        found = sampler.expand(structure, torch.tensor([0]), step, 0)
        factor = found.scale.repeat(len(found.neighbours)) if found.weight is None else found.weight
        often[step].index_add_(0, found.neighbours, torch.ones(len(factor)))
        counts[step].index_add_(0, found.neighbours, factor)
    return often, counts


def near(share: Tensor, p: float | Tensor, draws: int = DRAWS) -> bool:
    """Return whether shares of draws are within four standard errors of their probabilities."""
    p = torch.as_tensor(p, dtype=torch.float64)
    return bool(((share - p).abs() <= 4 * (p * (1 - p) / draws).sqrt() + 1e-9).all())


@pytest.mark.parametrize("method", SAMPLERS)
def test_every_neighbour_as_often(method):
    often, counts = draws_of(Structure.of_graph(star(12)), NeighbourSampler((4,), seed=2, **SAMPLERS[method]))
    expected = 1 - (11 / 12) ** 4 if method == "replace" else 4 / 12
    assert near((often > 0)[:, 1:].double().mean(0), expected)
    error = counts[:, 1:].std(0) / math.sqrt(DRAWS)
    assert ((counts[:, 1:].mean(0) - 1).abs() <= 4 * error).all()  # so sums over what is drawn have no bias


def test_every_subset_as_often():
    often, _ = draws_of(Structure.of_graph(star(6)), NeighbourSampler((3,), seed=5))
    subsets = dict.fromkeys(combinations(range(1, 7), 3), 0)
    for row in often:
        subsets[tuple(row.nonzero().flatten().tolist())] += 1
    expected = DRAWS / len(subsets)
    chi = sum((count - expected) ** 2 / expected for count in subsets.values())
    assert chi < 43.8  # 19 degrees of freedom, 0.1 %


@pytest.mark.parametrize("replace", [False, True])
def test_by_weight(replace):
    weight = np.array([0.0, 1.0, 2.0, 3.0, 10.0], np.float32)
    graph = Graph(**{**vars(star(5)), "edge_attr": weight})
    structure = Structure.of_graph(graph, data=True)
    often, counts = draws_of(structure, NeighbourSampler((2,), "weighted", replace, seed=3))
    share = weight / weight.sum()
    if replace:
        expected = torch.tensor([1 - (1 - p) ** 2 for p in share])
    else:  # in one of the two orders in which it can be drawn
        expected = torch.tensor(
            [p + sum(q * p / (1 - q) for k, q in enumerate(share) if k != j) for j, p in enumerate(share)]
        )
    assert near((often > 0)[:, 1:].double().mean(0), expected)
    assert not often[:, 1].any()
    error = counts[:, 2:].std(0) / math.sqrt(DRAWS)
    assert ((counts[:, 2:].mean(0) - 1).abs() <= 4 * error).all()


def test_labor_shares_one_number_among_all_readers():
    graph = community_graph(nodes=200, degree=20.0)
    seeds = torch.arange(0, 200, 4)
    structure = Structure.of_graph(graph)
    rows = {m: np.mean([len(NeighbourSampler((5,), m, seed=s).blocks(structure, seeds, 0).nodes) for s in range(30)])
            for m in ("uniform", "labor")}  # fmt: skip
    assert rows["labor"] < 0.95 * rows["uniform"]
    shared = NeighbourSampler((5, 5), "labor", seed=1, share_hops=True)
    first, second = (shared.expand(structure, seeds, 3, hop) for hop in range(2))
    assert torch.equal(first.neighbours, second.neighbours)


@pytest.mark.parametrize("direction", ["in", "out", "both"])
def test_directions_and_edge_ids(direction):
    edges = torch.tensor([[0, 1, 2, 3, 1, 0, 4, 4], [1, 0, 1, 1, 2, 1, 4, 0]])  # parallel edges and a self loop
    structure = Structure.of_edges(edges, 6, direction)
    found = NeighbourSampler((-1,)).expand(structure, torch.arange(6), 0, 0, edges=True)
    target = torch.repeat_interleave(torch.arange(6), found.indptr.diff())
    for t, n, e in zip(target.tolist(), found.neighbours.tolist(), found.edges.tolist(), strict=True):
        turns = {"in": [[n, t]], "out": [[t, n]], "both": [[n, t], [t, n]]}[direction]
        assert edges[:, e].tolist() in turns
    pairs = {"in": [(s, t) for s, t in edges.t().tolist()], "out": [(t, s) for s, t in edges.t().tolist()]}
    expected = sorted(pairs[direction]) if direction != "both" else sorted(set(pairs["in"]) | set(pairs["out"]))
    assert sorted(zip(found.neighbours.tolist(), target.tolist(), strict=True)) == expected


def test_what_cannot_be_drawn_is_refused():
    structure = Structure.of_graph(star(3))
    with pytest.raises(InputError, match="edge weights"):
        NeighbourSampler((2,), "weighted").expand(structure, torch.tensor([0]), 0, 0)
    with pytest.raises(InputError, match="repeated"):
        NeighbourSampler((2,)).blocks(structure, torch.tensor([0, 1, 0]), 0)
    for wrong in ({"fanouts": ()}, {"fanouts": (-2,)}, {"fanouts": (1,), "method": "x"}):
        with pytest.raises(InputError):
            NeighbourSampler(**wrong)
    with pytest.raises(InputError, match="replacement"):
        NeighbourSampler((1,), "labor", replace=True)
