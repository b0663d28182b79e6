"""Where a loader's batches come from: PyG data, a graph in memory, or a folder of parts."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from isthmus.device import on_host
from isthmus.errors import InputError
from isthmus.features.tables import Table, column, take
from isthmus.graph import Graph, load
from isthmus.graph.graph import SparseRows
from isthmus.graph.pyg import is_data
from isthmus.partition import Book, is_parts_folder
from isthmus.sample import Structure
from isthmus.shard.load import as_tensor

SPLITS = ("train", "val", "test")
ROWS = ("x", "y", *(f"{split}_mask" for split in SPLITS))


class Source(Protocol):
    """Structure and rows of a graph. Nodes are local numbers of the structure; users see the ids of `user_ids`."""

    structure: Structure
    num_nodes: int

    @property
    def names(self) -> Iterable[str]:
        """The names of what nodes have."""
        ...

    def pull(self, name: str, nodes: Tensor) -> Tensor:
        """Return rows of some nodes (int64)."""
        ...

    @property
    def edge_names(self) -> Iterable[str]:
        """The names of what edges have."""
        ...

    def pull_edges(self, name: str, edges: Tensor) -> Tensor:
        """Return rows of some edges (int64, as the source numbers them)."""
        ...

    def split(self, name: str) -> Tensor:
        """Return the nodes of a split (train, val, test), in the users' ids, int64."""
        ...

    def user_ids(self, nodes: Tensor) -> Tensor:
        """Return the ids by which users know some nodes, int64."""
        ...

    def local(self, ids: Tensor) -> Tensor:
        """Return the local numbers of nodes given by the users' ids."""
        ...


class GraphSource:
    """A graph in memory; its nodes have the same numbers everywhere."""

    def __init__(self, graph: Graph, weighted: bool):
        self.structure, self.num_nodes = Structure.of_graph(graph, data=weighted), graph.num_nodes
        self.names, self.edge_names = ROWS, () if graph.edge_attr is None else ("edge_attr",)
        self._rows = {name: column(getattr(graph, name)) for name in ROWS}
        self._edge_attr = None if graph.edge_attr is None else as_tensor(graph.edge_attr)

    def pull(self, name: str, nodes: Tensor) -> Tensor:
        return take(self._rows[name], nodes)

    def pull_edges(self, name: str, edges: Tensor) -> Tensor:
        assert self._edge_attr is not None
        return take(self._edge_attr, edges)

    def split(self, name: str) -> Tensor:
        return _first_split(self._rows[f"{name}_mask"]).nonzero().flatten()

    def user_ids(self, nodes: Tensor) -> Tensor:
        return nodes

    def local(self, ids: Tensor) -> Tensor:
        return ids


class BookSource:
    """A folder of parts, all of them on this machine; rows stay in the memory-mapped files. Users see original ids.

    Edges, and what they carry, are read into memory.
    """

    def __init__(self, book: Book, weighted: bool):
        carries = weighted or book.has_edge_attr
        self.structure, self.num_nodes = Structure.of_book(book, data=carries), book.nodes
        self.names, self.edge_names = ROWS, ("edge_attr",) if carries else ()
        self._rows = {name: Table.of(book, name, range(book.num_parts)) for name in ROWS}

    @cached_property
    def _by_id(self) -> Tensor:
        assert self.structure.original is not None
        places = torch.empty_like(self.structure.original)
        places[self.structure.original] = torch.arange(len(places))
        return places

    def pull(self, name: str, nodes: Tensor) -> Tensor:
        return self._rows[name].take(nodes)

    def pull_edges(self, name: str, edges: Tensor) -> Tensor:
        data, starts = self.structure.data, self.structure.edge_starts
        assert data is not None
        assert starts is not None
        row = self._by_id[torch.searchsorted(starts[self._by_id], edges, right=True) - 1]
        return data[edges - starts[row] + self.structure.pattern.indptr[row]]

    def split(self, name: str) -> Tensor:
        masks = [_first_split(mask) for mask in self._rows[f"{name}_mask"].pieces.values()]
        return self.user_ids(torch.cat(masks).nonzero().flatten()).sort().values

    def user_ids(self, nodes: Tensor) -> Tensor:
        assert self.structure.original is not None
        return self.structure.original[nodes]

    def local(self, ids: Tensor) -> Tensor:
        return self._by_id[ids]


class DataSource:
    """PyG data. What is neither of nodes nor of edges goes into every batch as it is."""

    def __init__(self, data: Any, weight_attr: str | None):
        if not hasattr(data, "is_node_attr"):
            raise InputError("NeighborLoader takes homogeneous Data: HeteroData has no sampler here yet")
        if data.edge_index is None:
            raise InputError("this Data has no edge_index: NeighborLoader draws from that")
        weight = None if weight_attr is None else on_host(data[weight_attr])
        self.structure = Structure.of_edges(on_host(data.edge_index), data.num_nodes, data=weight)
        self.data, self.num_nodes = data, data.num_nodes
        keys = [key for key, _ in data if key not in ("num_nodes", "edge_index")]
        self.names = tuple(key for key in keys if data.is_node_attr(key))
        self.edge_names = tuple(key for key in keys if data.is_edge_attr(key))

    def pull(self, name: str, nodes: Tensor) -> Tensor:
        value = self.data[name]
        return take(value, nodes) if isinstance(value, Tensor) else value[nodes.numpy()]

    def pull_edges(self, name: str, edges: Tensor) -> Tensor:
        return self.pull(name, edges)

    def split(self, name: str) -> Tensor:
        return _first_split(self.data[f"{name}_mask"]).nonzero().flatten()

    def user_ids(self, nodes: Tensor) -> Tensor:
        return nodes

    def local(self, ids: Tensor) -> Tensor:
        return ids


def open_source(source: Any, weight_attr: str | None) -> Source:
    """Return what batches are made from: PyG data, a graph, a book, a folder of parts, or anything `load` takes."""
    if is_data(source):
        return DataSource(source, weight_attr)
    if weight_attr not in (None, "edge_attr", "edge_weight"):
        raise InputError(f"unknown weight_attr {weight_attr!r}: the edges of {source} have one attribute, edge_attr")
    if isinstance(source, str | Path) and Path(source).is_dir() and is_parts_folder(source):
        source = Book.read(source)
    if isinstance(source, Book):
        return BookSource(source, weight_attr is not None)
    graph = source if isinstance(source, Graph) else load(source)
    return GraphSource(graph, weight_attr is not None)


def _first_split(mask: Tensor | SparseRows) -> Tensor:
    assert isinstance(mask, Tensor)
    return mask if mask.ndim == 1 else mask[:, 0]
