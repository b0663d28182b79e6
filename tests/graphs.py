"""Small graphs for tests, and parts of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from isthmus.graph.graph import Graph, SparseRows
from isthmus.partition import Book, partition


def community_graph(
    nodes: int = 120,
    classes: int = 4,
    features: int = 10,
    degree: float = 6.0,
    seed: int = 0,
    directed: bool = False,
    multilabel: bool = False,
    splits: int = 1,
) -> Graph:
    """Nodes that prefer their own class, one isolated node, one hub; features are the class and noise."""
    draw = np.random.default_rng(seed)
    label = draw.integers(classes, size=nodes)
    same = label[:, None] == label[None, :]
    linked = draw.random((nodes, nodes)) < np.where(same, 3.0, 0.5) * degree / nodes
    linked[0, : nodes // 3] = True  # a hub
    linked[-1, :] = linked[:, -1] = False  # a node without edges
    if not directed:
        linked = linked | linked.T
    np.fill_diagonal(linked, False)
    targets, sources = np.nonzero(linked)
    indptr = np.concatenate([[0], np.cumsum(linked.sum(1))]).astype(np.int64)
    x = (np.eye(classes)[label] @ draw.normal(size=(classes, features)) + draw.normal(size=(nodes, features))) * 0.5
    y = (draw.random((nodes, classes)) < 0.2 + 0.6 * np.eye(classes)[label]).astype(np.uint8) if multilabel else label
    kind = draw.integers(3, size=(nodes, splits))
    masks = {name: kind == k for k, name in enumerate(("train_mask", "val_mask", "test_mask"))}
    attributes = draw.normal(size=(len(sources), 2)).astype(np.float32)
    del targets
    return Graph(
        indptr=indptr,
        indices=sources.astype(np.int32),
        x=x.astype(np.float64),
        y=y if multilabel else y.astype(np.int64),
        num_classes=classes,
        name="community",
        symmetric=not directed,
        edge_attr=attributes,
        **masks,
    )


def weighted_graph(directed: bool = False, columns: int = 1) -> Graph:
    """The same kind of graph with one number above 0 per edge, or several, in float64."""
    graph = community_graph(directed=directed)
    shape = (graph.num_edges,) if columns == 1 else (graph.num_edges, columns)
    return replace(graph, edge_attr=np.random.default_rng(1).random(shape) + 0.1)


def with_few(graph: Graph) -> Graph:
    """The same graph with a quarter of its training nodes."""
    return replace(graph, train_mask=graph.train_mask & (np.arange(graph.num_nodes) % 4 == 0)[:, None])


def sparse_rows(dense: np.ndarray) -> SparseRows:
    rows, columns = np.nonzero(dense)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(dense)))])
    return SparseRows(indptr, columns.astype(np.int32), dense[rows, columns], dense.shape[1])


def cut(graph: Graph, parts: int, method: str, folder: Path, **options) -> Book:
    return partition(graph, parts, method, out=folder / f"{method}-{parts}", **options)


def npz(path: Path, **changes) -> Path:
    """An input file of such a graph, with some keys as the caller wants them."""
    graph = community_graph()
    targets = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    content = {
        "edge_index": np.stack([graph.indices, targets]),
        "x": graph.x.astype(np.float32),
        "y": graph.y,
        **{name: getattr(graph, name)[:, 0] for name in ("train_mask", "val_mask", "test_mask")},
        **changes,
    }
    np.savez(path, **content)
    return path


def tables(folder: Path, ids: Sequence[object]) -> Path:
    """Such a graph as a folder of CSV files with a column id."""
    graph = community_graph()
    targets = np.repeat(np.arange(120), np.diff(graph.indptr))
    split = np.select([graph.train_mask[:, 0], graph.val_mask[:, 0]], ["train", "val"], "test")
    folder.mkdir()
    edges = (f"{ids[a]},{ids[b]}" for a, b in zip(graph.indices, targets, strict=True))
    (folder / "edges.csv").write_text("\n".join(["src,dst", *edges]))
    nodes = (f"{ids[k]},{graph.y[k]},{split[k]},{','.join(map(str, graph.x[k]))}" for k in range(120))
    head = ",".join(["id", "label", "split", *(f"f{k}" for k in range(10))])
    (folder / "nodes.csv").write_text("\n".join([head, *nodes]))
    return folder


def whole_edges(graph: Graph) -> torch.Tensor:
    """All edges as PyG writes them, int64 [2, E]."""
    targets = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    return torch.from_numpy(np.stack([graph.indices.astype(np.int64), targets]))
