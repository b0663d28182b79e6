"""Read graphs of PyTorch Geometric: a ``Data`` object in memory, or a dataset by name (``pyg:Reddit``)."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.device import on_host
from isthmus.errors import InputError
from isthmus.graph.graph import Graph, SparseRows
from isthmus.graph.options import LoadOptions
from isthmus.graph.raw import RawGraph, assemble, attributes, no_features

MASKS = ("train_mask", "val_mask", "test_mask")
# name → (class in torch_geometric.datasets, its other arguments)
DATASETS: dict[str, tuple[str, dict[str, str]]] = {
    "Reddit": ("Reddit", {}),
    "Reddit2": ("Reddit2", {}),
    "Flickr": ("Flickr", {}),
    "Yelp": ("Yelp", {}),
    "AmazonProducts": ("AmazonProducts", {}),
    "Cora": ("Planetoid", {"name": "Cora"}),
    "CiteSeer": ("Planetoid", {"name": "CiteSeer"}),
    "PubMed": ("Planetoid", {"name": "PubMed"}),
    "Computers": ("Amazon", {"name": "Computers"}),
    "Photo": ("Amazon", {"name": "Photo"}),
    "CS": ("Coauthor", {"name": "CS"}),
    "Physics": ("Coauthor", {"name": "Physics"}),
}


def from_pyg(data: Any, *, name: str = "pyg", **options: Any) -> Graph:
    """Return the Graph of a PyG ``Data`` object with ``edge_index, x, y, train_mask, val_mask, test_mask``."""
    return assemble(read_data(data, name), LoadOptions(**options))


def is_data(source: Any) -> bool:
    """Return whether this is a PyG object, without importing PyG."""
    return any(cls.__module__.startswith("torch_geometric.data") for cls in type(source).__mro__)


def read_data(data: Any, name: str, *, split: bool = False) -> RawGraph:
    """Read a PyG object; ``split=True`` draws a seeded 60/20/20 split if the data has none."""
    if hasattr(data, "node_types"):
        raise InputError(f"{name} is a HeteroData object: turn it into one graph with data.to_homogeneous()")
    edge_index = getattr(data, "edge_index", None)
    if edge_index is None:
        sparse = getattr(data, "adj_t", None) is not None
        remedy = "data.edge_index = torch.stack(data.adj_t.t().coo()[:2])" if sparse else "a [2, E] tensor of integers"
        raise InputError(f"{name} has no edge_index: set it, {remedy}")
    if getattr(data, "y", None) is None:
        raise InputError(f"{name} has no y: set data.y, one row per node")
    notes: tuple[str, ...] = ()
    y = _array(data.y, name, "y")
    x = no_features(y) if getattr(data, "x", None) is None else _rows(data.x, name)
    missing = [mask for mask in MASKS if getattr(data, mask, None) is None]
    if missing and not (split and len(missing) == 3):
        raise InputError(f"{name} has no {', '.join(missing)}: set them, e.g. with PyG's transform RandomNodeSplit")
    if missing:
        train, val, test = _split(x.shape[0], y)
        notes = ("no split comes with this dataset: a 60/20/20 split with seed 0 was drawn",)
    else:
        train, val, test = (_array(getattr(data, mask), name, mask) for mask in MASKS)
    edges = _array(edge_index, name, "edge_index")
    if edges.ndim != 2 or len(edges) != 2:
        raise InputError(f"{name}: edge_index has shape {list(edges.shape)}, expected [2, E]: transpose it")
    kind = getattr(data, "node_type", None)
    attr, said = attributes(getattr(data, "edge_attr", None), getattr(data, "edge_weight", None))
    notes += said
    if getattr(data, "edge_type", None) is not None:
        notes += ("edge_type is not read: put it into edge_attr",)
    return RawGraph(
        edges[0], edges[1], x, y, train, val, test, name,
        edge_attr=None if attr is None else _array(attr, name, "edge_attr"),
        node_type=None if kind is None else _array(kind, name, "node_type"), notes=notes,
    )  # fmt: skip


def read_pyg(name: str, roots: list[Path]) -> RawGraph:
    """Read a dataset of torch_geometric.datasets from the first root that has it, else download it to the first."""
    if name not in DATASETS:
        raise InputError(f"no PyG dataset {name!r}: take one of {', '.join(DATASETS)}, or give a Data object")
    try:
        from torch_geometric import datasets
    except ImportError:
        raise InputError(f"pyg:{name} needs PyTorch Geometric: pip install 'isthmus[pyg]'") from None
    kind, arguments = DATASETS[name]
    folder = next((root / kind for root in roots if (root / kind).is_dir()), roots[0] / kind)
    try:
        data = getattr(datasets, kind)(root=str(folder), **arguments)[0]
    except Exception as error:  # PyG's own reader can raise anything on a damaged cache
        remedy = "remove the folder to download it again"
        raise InputError(f"pyg:{name} cannot be read from {folder} ({error!r}): {remedy}") from error
    return read_data(data, name, split=True)


def _array(value: Any, name: str, field: str) -> np.ndarray:
    """Return a tensor, or anything that numpy turns into an array of numbers, as an array."""
    try:
        if str(getattr(value, "dtype", "")) == "torch.bfloat16":  # numpy has no bfloat16
            value = value.float()
        dense = _is_tensor(value)
        array = on_host(value.detach()).resolve_conj().resolve_neg().numpy() if dense else np.asarray(value)
    except (TypeError, ValueError, RuntimeError, AttributeError, OverflowError) as error:
        why = str(error).partition("\n")[0]
        raise InputError(f"{name}: {field} is not a plain array ({why}): set it to a dense tensor of numbers") from None
    if array.dtype.kind not in "biuf":
        raise InputError(f"{name}: {field} holds {array.dtype}, not numbers: set it to a dense tensor of numbers")
    return array


def _is_tensor(value: Any) -> bool:
    return type(value).__module__.startswith("torch") and hasattr(value, "detach")


def _rows(x: Any, name: str) -> np.ndarray | SparseRows:
    """Return dense rows, or the CSR rows of a sparse tensor."""
    if not _is_tensor(x) or str(getattr(x, "layout", "torch.strided")) == "torch.strided":
        rows = _array(x, name, "x")
        if rows.ndim != 2:
            raise InputError(f"{name}: x has shape {list(rows.shape)}, expected [N, F]: give one row per node")
        return rows
    try:
        x = x.to_sparse_coo().coalesce()  # sorted by row
    except (RuntimeError, NotImplementedError):
        raise InputError(f"{name}: x is a sparse tensor of an unknown kind: give x.to_sparse_coo()") from None
    if x.sparse_dim() != 2 or x.dense_dim():
        raise InputError(f"{name}: x is sparse of shape {list(x.shape)}, expected [N, F]: give one row per node")
    row, column = _array(x.indices(), name, "x")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=x.shape[0]))])
    return SparseRows(indptr, column, _array(x.values(), name, "x"), int(x.shape[1]))


def _split(nodes: int, y: np.ndarray) -> list[np.ndarray]:
    order = np.random.Generator(np.random.Philox(0)).permutation(nodes)
    if y.shape == (nodes,):
        order = order[y[order] >= 0]
    cuts = (0, round(0.6 * len(order)), round(0.8 * len(order)), len(order))
    masks = np.zeros((3, nodes), bool)
    for mask, (a, b) in zip(masks, pairwise(cuts), strict=True):
        mask[order[a:b]] = True
    return list(masks)
