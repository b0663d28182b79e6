"""Store a checked graph as a folder of ``.npy`` files and read it back memory-mapped, for graphs larger than memory."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from isthmus.errors import InputError
from isthmus.files import check_seal, map_array, read_as, read_json, sealed, sha256
from isthmus.files.array_file import ArrayFile
from isthmus.files.atomic import folder_at_once
from isthmus.graph.check import most_classes
from isthmus.graph.graph import Graph, SparseRows
from isthmus.graph.ranges import ascends, outlier

FORMAT, VERSION = "isthmus-graph", 1
MASKS = ("train_mask", "val_mask", "test_mask")
NAMES = {"indptr", "indices", "x", "x_indptr", "x_indices", "x_data", "y", *MASKS, "edge_attr", "node_type", "ids"}
_AGAIN = "convert the graph again"


@dataclass(frozen=True)
class About:
    """The content of graph.json."""

    format: str
    version: int
    checked: bool
    name: str
    nodes: int
    edges: int
    features: int
    splits: int
    num_classes: int
    multilabel: bool
    symmetric: bool
    notes: tuple[str, ...]
    arrays: tuple[str, ...]
    sums: dict[str, str] = field(default_factory=dict)
    """The sha256 of every array; empty in older folders."""
    regression: bool = False


def save_graph(graph: Graph, folder: str | os.PathLike) -> Path:
    """Write the graph to a new folder, which appears whole or not at all."""
    folder = Path(folder)
    if folder.exists():
        raise InputError(f"{folder} exists already: choose another name or remove it")
    if graph.held_out is not None:
        raise InputError(
            "a graph folder holds no edges out: save the graph without hold_out, which cutting it takes too"
        )
    arrays: dict[str, np.ndarray | None] = {
        "indptr": graph.indptr, "indices": graph.indices, "y": graph.y, "train_mask": graph.train_mask,
        "val_mask": graph.val_mask, "test_mask": graph.test_mask,
        "edge_attr": graph.edge_attr, "node_type": graph.node_type, "ids": graph.ids,
    }  # fmt: skip
    if isinstance(graph.x, SparseRows):
        arrays |= {"x_indptr": graph.x.indptr, "x_indices": graph.x.indices, "x_data": graph.x.data}
    else:
        arrays["x"] = graph.x
    about = {
        "format": FORMAT, "version": VERSION, "name": graph.name, "nodes": graph.num_nodes, "edges": graph.num_edges,
        "features": graph.num_features, "num_classes": graph.num_classes, "multilabel": graph.multilabel,
        "regression": graph.regression,
        "splits": graph.num_splits, "symmetric": graph.symmetric, "checked": True, "notes": list(graph.notes),
        "arrays": sorted(name for name, array in arrays.items() if array is not None),
    }  # fmt: skip
    with folder_at_once(folder, replace=False, ours=is_graph_folder, what="a graph folder") as part:
        sums = {name: _write(part / f"{name}.npy", array) for name, array in arrays.items() if array is not None}
        text = json.dumps(sealed({**about, "sums": sums}), indent=1, ensure_ascii=False)
        (part / "graph.json").write_text(text + "\n", encoding="utf-8")
    return folder


def _write(path: Path, array: np.ndarray) -> str:
    """Write an array; return its sha256."""
    file = ArrayFile(path, array.dtype, array.shape)
    file.append(array)
    return file.close()["sha256"]


def is_graph_folder(folder: Path) -> bool:
    return (folder / "graph.json").is_file()


def open_graph(folder: str | os.PathLike) -> Graph:
    """Memory-map a graph folder; check its sums, its shapes and the range of every index, but not the values.

    Folders of versions that stored no sums are read without comparing them.
    """
    folder = Path(folder)
    about = _about(folder)
    arrays = {name: _map(folder, name, about) for name in about.arrays}
    if complaint := _forms(about, arrays) or _ranges(about, arrays):
        name, how = complaint
        raise InputError(f"{folder}/{name}.npy {how}: {_AGAIN}")
    train, val, test = (arrays[mask] for mask in MASKS)
    x: np.ndarray | SparseRows = arrays["x"] if "x" in arrays else arrays["x_data"]
    if "x" not in arrays:
        x = SparseRows(arrays["x_indptr"], arrays["x_indices"], arrays["x_data"], about.features)
    return Graph(
        arrays["indptr"], arrays["indices"], x, arrays["y"], train, val, test,
        about.num_classes, about.name, about.symmetric, arrays.get("edge_attr"), arrays.get("node_type"),
        about.notes, arrays.get("ids"),
    )  # fmt: skip


Complaint = tuple[str, str] | None  # (array, what is wrong with it)


def _forms(about: About, arrays: dict[str, np.ndarray]) -> Complaint:
    """Check types and shapes."""
    n, e = about.nodes, about.edges
    y = ("u1", (n, about.num_classes)) if about.multilabel else ("i8", (n,))
    y = ("f2 f4 f8", (n, about.num_classes)) if about.regression else y
    expected: dict[str, tuple[str, tuple[int, ...]]] = {"indptr": ("i8", (n + 1,)), "indices": ("i4 i8", (e,)), "y": y}
    expected |= dict.fromkeys(MASKS, ("b1", (n, about.splits)))
    if "x" in arrays:
        expected["x"] = ("f2 f4 f8", (n, about.features))
    else:
        nnz = arrays["x_data"].size if "x_data" in arrays else 0
        expected |= {"x_indptr": ("i8", (n + 1,)), "x_indices": ("i4", (nnz,)), "x_data": ("f2 f4 f8", (nnz,))}
    for name, kinds, width in (("edge_attr", "f2 f4 f8", e), ("node_type", "i8", n), ("ids", "iu U", n)):
        if name in arrays:
            expected[name] = (kinds, (width, *arrays[name].shape[1:]) if name == "edge_attr" else (width,))
    for name, (kinds, shape) in expected.items():
        if name not in arrays:
            return name, "is not there"
        if arrays[name].shape != shape:
            return name, f"has shape {list(arrays[name].shape)}, not {list(shape)}"
        dtype = arrays[name].dtype
        if not dtype.isnative or not (dtype.str[1:] in kinds.split() or (name == "ids" and dtype.kind in "iuU")):
            return name, f"holds {dtype}"
    attr = arrays.get("edge_attr")
    return ("edge_attr", "has more than two dimensions") if attr is not None and attr.ndim > 2 else None


def _ranges(about: About, arrays: dict[str, np.ndarray]) -> Complaint:
    """Check that row starts ascend, indices are in range and labels are classes."""
    for name, end in (("indptr", about.edges), ("x_indptr", arrays["x_data"].size if "x_data" in arrays else 0)):
        if name in arrays and not ascends(arrays[name], end):
            return name, f"does not ascend from 0 to {end:,}"
    limits = {"indices": (about.nodes, 0), "x_indices": (about.features, 0)}
    if not about.regression:
        limits["y"] = (2, 0) if about.multilabel else (about.num_classes, -1)
    unlabelled = np.isnan(arrays["y"][:, 0]) if about.regression else arrays["y"] < 0
    for name, (limit, least) in limits.items():
        if name in arrays and (place := outlier(arrays[name], limit, least)) is not None:
            return name, f"has {arrays[name].reshape(-1)[place]} in place {place:,}, out of {least} to {limit - 1:,}"
    for name in MASKS:
        if not about.multilabel and bool((arrays[name].any(axis=1) & unlabelled).any()):
            return name, "has a node without a label"
    return None


def _about(folder: Path) -> About:
    path = folder / "graph.json"
    content = read_json(path, _AGAIN)
    about = read_as(About, content, str(path), _AGAIN)
    if about.format != FORMAT or not about.checked:
        raise InputError(f"{path} does not describe a checked graph: {_AGAIN}")
    if about.version > VERSION:
        raise InputError(f"{folder} has format version {about.version}, newer than {VERSION}: update isthmus")
    check_seal(content, path, _AGAIN)
    sizes = 0 < about.nodes < 2**31 and about.edges >= 0 and 0 <= about.features < 2**31 and about.splits > 0
    known = set(about.arrays) <= NAMES and len(set(about.arrays)) == len(about.arrays)
    if not sizes or not known or not 0 < about.num_classes <= most_classes(about.nodes):
        raise InputError(f"{path} is damaged (sizes that no graph has, or arrays that are unknown): {_AGAIN}")
    return about


def _map(folder: Path, name: str, about: About) -> np.ndarray:
    path = folder / f"{name}.npy"
    if about.sums and sha256(path, _AGAIN) != about.sums.get(name):
        raise InputError(f"{path} is damaged (its sha256 is not that of graph.json): {_AGAIN}")
    return map_array(path, _AGAIN)
