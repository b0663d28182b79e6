"""A checked graph as a folder of plain ``.npy`` files, read back memory-mapped: for graphs larger than memory."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np

from isthmus.errors import InputError
from isthmus.graph.graph import Graph, SparseRows

FORMAT, VERSION = "isthmus-graph", 1
MASKS = ("train_mask", "val_mask", "test_mask")
FIELDS = ("nodes", "edges", "features", "splits", "num_classes", "multilabel", "name", "symmetric", "notes", "arrays")


def save_graph(graph: Graph, folder: str | os.PathLike) -> Path:
    """Write the graph; the folder appears whole or not at all."""
    folder = Path(folder)
    if folder.exists():
        raise InputError(f"{folder} exists already: choose another name or remove it")
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
        "splits": graph.num_splits, "symmetric": graph.symmetric, "checked": True, "notes": list(graph.notes),
        "arrays": sorted(name for name, array in arrays.items() if array is not None),
    }  # fmt: skip
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        for name, array in arrays.items():
            if array is not None:
                np.save(part / f"{name}.npy", array, allow_pickle=False)
        (part / "graph.json").write_text(json.dumps(about, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        part.chmod(0o755)
        part.rename(folder)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    return folder


def is_graph_folder(folder: Path) -> bool:
    return (folder / "graph.json").is_file()


def open_graph(folder: str | os.PathLike) -> Graph:
    """Memory-map the graph. It was checked when it was written: only names, shapes and file sizes are checked again."""
    folder = Path(folder)
    about = _about(folder)
    arrays = {name: _map(folder / f"{name}.npy") for name in about["arrays"]}
    n, e, f, s = about["nodes"], about["edges"], about["features"], about["splits"]
    y_shape = (n, about["num_classes"]) if about["multilabel"] else (n,)
    expected: dict[str, tuple[int, ...]] = {"indptr": (n + 1,), "indices": (e,), "y": y_shape}
    expected |= dict.fromkeys(MASKS, (n, s))
    expected |= {"x_indptr": (n + 1,)} if "x_data" in arrays else {"x": (n, f)}
    for name, shape in expected.items():
        if name not in arrays:
            raise InputError(f"{folder} has no {name}.npy: convert the graph again")
        if arrays[name].shape != shape:
            found = list(arrays[name].shape)
            raise InputError(f"{folder}/{name}.npy has shape {found}, not {list(shape)}: convert the graph again")
    if arrays["indptr"][0] != 0 or arrays["indptr"][-1] != e:
        raise InputError(f"{folder}/indptr.npy does not end at {e:,} edges: convert the graph again")
    train, val, test = (arrays[mask] for mask in MASKS)
    x: np.ndarray | SparseRows
    x = SparseRows(arrays["x_indptr"], arrays["x_indices"], arrays["x_data"], f) if "x_data" in arrays else arrays["x"]
    return Graph(
        arrays["indptr"], arrays["indices"], x, arrays["y"], train, val, test,
        about["num_classes"], about["name"], about["symmetric"], arrays.get("edge_attr"), arrays.get("node_type"),
        tuple(about["notes"]), arrays.get("ids"),
    )  # fmt: skip


def _about(folder: Path) -> dict:
    try:
        about = json.loads((folder / "graph.json").read_text(encoding="utf-8"))
        if about["format"] != FORMAT or not about["checked"]:
            raise InputError(f"{folder}/graph.json is not that of a checked graph: convert the graph again")
        if about["version"] > VERSION:
            raise InputError(f"{folder} has format version {about['version']}, newer than {VERSION}: update isthmus")
        if missing := set(FIELDS) - set(about):
            raise KeyError(*missing)
    except (OSError, json.JSONDecodeError, KeyError, TypeError):
        raise InputError(f"{folder}/graph.json is missing, damaged or incomplete: convert the graph again") from None
    return about


def _map(path: Path) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        raise InputError(f"{path} is missing, truncated or damaged: convert the graph again") from None
