"""Vertex-cuts: the core against its twins, replicas and balance, and the parts on disk, single and joined."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from partition.graphs import communities, edges_of, graph_of
from partition.test_book import edit, replace_array

from isthmus.errors import InputError
from isthmus.kernels.native import core
from isthmus.partition import Book, own_part, partition, vertex
from isthmus.partition.assemble import assemble
from isthmus.partition.border import READ, SUMMED
from isthmus.partition.vertex import VERTEX_METHODS, VertexOptions, expansion, masters, place_edges, streams
from isthmus.partition.vertex import edges as vertex_edges

needs_core = pytest.mark.skipif(core() is None, reason="the native core was not built: no C++ compiler at install")
OPTIONS = {"ebv": [{}, {"hosts": 2}, {"hosts": 2, "host_score": "as-published"}], "hep": [{}, {"tau": 1.5}]}
CASES = [(name, options) for name in VERTEX_METHODS for options in OPTIONS.get(name, [{}])]


def hubs(directed: bool, nodes: int = 90) -> object:
    """A few hubs that most nodes know, and some edges at random; three nodes have no edge."""
    rng = np.random.default_rng(1)
    near = np.stack([rng.integers(0, 4, 250), rng.integers(4, nodes - 3, 250)], 1)
    return graph_of(np.concatenate([near, rng.integers(0, nodes - 3, (150, 2))]), nodes, directed=directed)


def place(graph, method, parts=4, **options):
    return place_edges(graph, parts, method, VertexOptions(**options), lambda done, total: None)


@pytest.fixture
def without_core(monkeypatch):
    def use_twins():
        for module in (vertex, streams, expansion, vertex_edges):
            monkeypatch.setattr(module, "core", lambda: None)

    return use_twins


@needs_core
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize(("method", "options"), CASES)
def test_the_core_places_every_edge_as_its_twin(without_core, method, options, directed):
    graph = hubs(directed)
    native, hosts = place(graph, method, **options), [0, 0, 1, 1]
    owners = masters(graph, 4, native), masters(graph, 4, native, hosts)
    without_core()
    assert np.array_equal(place(graph, method, **options), native)
    assert np.array_equal(masters(graph, 4, native), owners[0])
    assert np.array_equal(masters(graph, 4, native, hosts), owners[1])


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("method", VERTEX_METHODS)
def test_every_edge_has_one_part_and_both_directions_the_same(method, directed):
    graph = hubs(directed)
    part = place(graph, method)
    assert part.min() >= 0
    assert part.max() < 4
    if not directed:
        where = {tuple(edge): k for edge, k in zip(edges_of(graph).tolist(), part, strict=True)}
        assert all(where[v, u] == k for (u, v), k in where.items())
    sizes = np.bincount(part, minlength=4)
    if method in ("hep", "ne", "ebv", "hdrf"):
        assert sizes.max() <= 1.05 * sizes.mean() + 2


def test_expansion_finds_the_communities():
    """Two rings of cliques: the cut is where it should be, and far better than edges placed anywhere."""
    graph = communities(nodes=400, groups=4, degree=16, inside=0.97)

    def replicas(method):
        part = place(graph, method)
        return len(np.unique(np.stack([edges_of(graph)[:, 0], part], 1), axis=0)) / graph.num_nodes

    assert replicas("ne") < 1.3 < 1.6 < replicas("ebv") < replicas("random")


def test_gamma_spares_messages_between_hosts():
    """A mirror and its master on another host send each other one message; masters are where most replicas are."""
    graph = communities(nodes=600, groups=6, inside=0.7)

    def outer(parts, gamma):
        part = place(graph, "ebv", parts, hosts=2, gamma=gamma)
        at = np.unique(np.stack([edges_of(graph)[:, 0], part], 1), axis=0)
        owner = masters(graph, parts, part, [k * 2 // parts for k in range(parts)] if gamma else None)
        far = at[at[:, 1] * 2 // parts != owner[at[:, 0]] * 2 // parts]
        return (np.bincount(far[:, 1], minlength=parts) + np.bincount(owner[far[:, 0]], minlength=parts)).max()

    assert outer(4, 0.1) < 0.9 * outer(4, 0.0)
    assert outer(8, 0.1) < 0.8 * outer(8, 0.0)


def test_tau_is_as_large_as_memory_allows():
    degree = np.array([1, 1, 2, 4, 100])
    assert expansion.most_tau(degree, None) == np.inf
    assert expansion.most_tau(degree, 2 * 8 * 108) == np.inf
    limit = expansion.most_tau(degree, 2 * 8 * 107)  # all but the hub fit
    assert (degree > limit * degree.mean()).tolist() == [False, False, False, False, True]


def test_the_book_says_what_was_chosen(tmp_path):
    graph = communities(nodes=60, groups=2)
    for method, given, chosen in [
        ("hep", {}, {"tau": "inf"}),
        ("hep", {"tau": 1.5}, {"tau": 1.5}),
        ("ebv", {"hosts": 2}, {"gamma": 0.1, "host_score": "messages"}),
    ]:
        book = partition(graph, 2, method, cut="vertex", out=tmp_path / f"{method}{len(given)}", **given)
        assert chosen.items() <= Book.read(tmp_path / f"{method}{len(given)}").options.items()
        assert book.options == Book.read(tmp_path / f"{method}{len(given)}").options


def test_masters_are_replicas_and_send_alike():
    graph = hubs(directed=False)
    part = place(graph, "ebv")
    owner = masters(graph, 4, part)
    held = [set() for _ in range(graph.num_nodes)]
    for (u, v), k in zip(edges_of(graph), part, strict=True):
        held[u].add(k)
        held[v].add(k)
    assert all(k in parts or not parts for k, parts in zip(owner, held, strict=True))
    sent = np.zeros(4)
    for k, parts in zip(owner, held, strict=True):
        for p in parts if len(parts) > 1 else ():
            sent[p] += len(parts) - 1 if p == k else 1
    assert sent.max() < 1.1 * sent.mean()


def test_masters_are_where_most_replicas_are():
    graph = hubs(directed=False)
    part = place(graph, "ebv")
    owner = masters(graph, 4, part, host=[0, 0, 1, 1])
    for v in range(graph.num_nodes):
        held = {int(k) for edge, k in zip(edges_of(graph), part, strict=True) if v in edge}
        sides = len(held & {0, 1}), len(held & {2, 3})
        assert not held or sides[owner[v] // 2] == max(sides)


def check(graph, parts):
    """Every edge is in one part, every node has one owner, and both ends of a link know its mirrors and their legs."""
    found = []
    for k, part in enumerate(parts):
        n, every = len(part.nodes), np.concatenate([part.nodes, part.halo_nodes])
        sides = {"inner": (0, 0), "halo": (0, n), "mirror": (n, 0)}
        legs = np.zeros(len(every), np.uint8)
        for side, (row, column) in sides.items():
            indptr, indices = getattr(part, f"{side}_indptr"), getattr(part, f"{side}_indices")
            rows, columns = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr)) + row, indices + column
            legs[columns] |= READ
            legs[rows] |= SUMMED
            values = getattr(part, f"{side}_edge_attr")
            found += zip(every[columns].tolist(), every[rows].tolist(), values.ravel().tolist(), strict=True)
            assert all((np.diff(indices[a:b]) > 0).all() for a, b in pairwise(indptr))
        assert np.array_equal(legs[n:], part.halo_legs)
        assert np.array_equal(part.degree, graph.degree[part.nodes])
        assert np.array_equal(part.halo_degree, graph.degree[part.halo_nodes])
        for q, owner in enumerate(parts):
            mine, theirs = slice(*part.halo_ptr[q : q + 2]), slice(*owner.send_ptr[k : k + 2])
            assert np.array_equal(owner.nodes[owner.send_rows[theirs]], part.halo_nodes[mine])
            assert np.array_equal(owner.nodes[part.halo_rows[mine]], part.halo_nodes[mine])
            assert np.array_equal(owner.send_legs[theirs], part.halo_legs[mine])
    expected = zip(*edges_of(graph).T.tolist(), graph.edge_attr.ravel().tolist(), strict=True)
    assert sorted(found) == sorted(expected)
    assert sorted(np.concatenate([part.nodes for part in parts])) == list(range(graph.num_nodes))


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_parts_on_disk_and_joined(tmp_path, workers, directed):
    graph = hubs(directed)
    graph = replace(graph, edge_attr=np.arange(graph.num_edges, dtype=np.float32)[:, None])
    book = partition(graph, 5, "ebv", out=tmp_path / "parts", cut="vertex")
    check(graph, [own_part(book, worker, workers) for worker in range(workers)])


def test_the_book_counts_replicas_and_rows(tmp_path):
    graph = hubs(directed=False)
    book = partition(graph, 4, out=tmp_path / "parts", cut="vertex")
    q, mirrors = book.quality, sum(part.halo for part in book.parts)
    assert (book.cut, book.method) == ("vertex", "hep")
    assert q["replication"] == pytest.approx(1 + mirrors / graph.num_nodes)
    assert q["volume"] == 2 * mirrors == sum(q["scatter_rows"]) + sum(q["gather_rows"])
    assert sum(part.edges for part in book.parts) == graph.num_edges
    again = assemble(book)
    assert np.array_equal(again.indices, graph.indices)


def test_more_parts_than_edges_leave_none_without_a_node(tmp_path):
    book = partition(graph_of([(0, 1)], 6), 4, out=tmp_path / "parts", cut="vertex")
    assert min(part.inner for part in book.parts) >= 1
    assert partition(graph_of([], 3), 2, out=tmp_path / "none", cut="vertex").quality["volume"] == 0


def test_wrong_options_are_refused(tmp_path):
    graph, out = communities(), tmp_path / "parts"
    for options, message in (
        ({"cut": "vertex", "method": "metis"}, "unknown partition method 'metis' for --cut vertex: choose one of hep"),
        ({"cut": "vertex", "balance": ("nodes",)}, "hep does not use balance"),
        ({"cut": "vertex", "method": "ebv", "gamma": 0.1}, "say how many there are"),
        ({"cut": "vertex", "method": "ebv", "hosts": 5}, "4 parts cannot be on 5 hosts"),
        ({"cut": "vertex", "tau": 0.0}, "tau must be above 0"),
        ({"method": "ebv"}, "unknown partition method 'ebv' for --cut edge: choose one of metis"),
    ):
        with pytest.raises(InputError, match=message):
            partition(graph, 4, out=out, **options)


def test_self_loops_of_a_symmetric_graph_are_refused():
    """The readers of graphs leave them out."""
    graph = hubs(directed=False)
    first = int(np.argmax(np.diff(graph.indptr)))
    indices = graph.indices.copy()
    indices[graph.indptr[first]] = first
    with pytest.raises(InputError, match="has self loops"):
        place(replace(graph, indices=indices), "ebv")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("halo_legs", lambda a: np.full_like(a, 3)),
        ("send_legs", lambda a: a[::-1] ^ 3),
        ("mirror_indices", lambda a: a + np.int32(1000)),
        ("mirror_indptr", lambda a: a[::-1].copy()),
    ],
)
def test_damaged_parts_are_refused(tmp_path, name, change):
    folder = tmp_path / "parts"
    partition(hubs(directed=True), 3, "ebv", out=folder, cut="vertex")
    replace_array(folder, name, change(np.load(folder / "part-0" / f"{name}.npy")))
    with pytest.raises(InputError, match=f"part-0/{name}.npy .*: write the parts again"):
        Book.read(folder).part(0)


def test_a_cut_of_the_future_is_refused(tmp_path):
    folder = tmp_path / "parts"
    partition(communities(), 2, out=folder)
    edit(folder, cut="corner")
    with pytest.raises(InputError, match="has the cut 'corner', this isthmus reads edge, cover, vertex"):
        Book.read(folder)
