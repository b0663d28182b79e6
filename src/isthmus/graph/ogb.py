"""Read OGB's node datasets from their own files: ``raw/*.csv.gz`` or ``raw/*.npz``, and ``split/TYPE/*.csv.gz``.

The ``ogb`` package is needed only to download them, not to read the files that it leaves on disk.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from isthmus.errors import InputError
from isthmus.graph.npz import NpzArrays
from isthmus.graph.raw import RawGraph
from isthmus.graph.text import read_matrix

ONE_WAY = {"ogbn-products", "ogbn-proteins"}  # stored with one direction of every undirected edge
BOTH = "ogbn-products, ogbn-arxiv, ogbn-proteins, ogbn-papers100M"
SPLITS = ("train", "valid", "test")


def find_ogb(name: str, roots: list[Path]) -> Path:
    """Return the folder of the dataset below one of the roots; download it into the first root if none has it."""
    if name not in BOTH.split(", "):
        raise InputError(f"no OGB node dataset {name!r}: take one of {BOTH}")
    for root in roots:
        for folder in (root / name.replace("-", "_"), root / name):
            if is_ogb(folder):
                return folder
    try:
        from ogb.nodeproppred import NodePropPredDataset
    except ImportError:
        places = " or ".join(str(root / name.replace("-", "_")) for root in roots)
        remedy = "unpack it there, or pip install 'isthmus[ogb]' to download it"
        raise InputError(f"{name} is not in {places}: {remedy}") from None
    NodePropPredDataset(name, root=str(roots[0]))
    return roots[0] / name.replace("-", "_")


def is_ogb(folder: Path) -> bool:
    return (folder / "raw" / "edge.csv.gz").exists() or (folder / "raw" / "data.npz").exists()


def read_ogb(folder: Path) -> tuple[RawGraph, bool]:
    """Read the dataset; also return whether its file holds only one direction of undirected edges."""
    name = folder.resolve().name.replace("_", "-")
    raw = folder / "raw"
    fields = _binary(raw) if (raw / "data.npz").exists() else _text(raw)
    masks = _masks(folder / "split", fields["y"].shape[0] if fields["y"].ndim else 0)
    return RawGraph(**fields, **masks, name=name), name in ONE_WAY


def _text(raw: Path) -> dict[str, Any]:
    """Read the CSV files edge, node-feat, node-label, num-node-list, and optionally edge-feat and node species."""
    for needed in ("edge", "node-label", "num-node-list"):
        if not (raw / f"{needed}.csv.gz").exists():
            raise InputError(f"{raw} has no {needed}.csv.gz: unpack the dataset again")
    edge, counts = (read_matrix(raw / f"{name}.csv.gz", np.int64) for name in ("edge", "num-node-list"))
    if edge.shape[1] != 2 or not counts.size or not 0 < counts[0, 0] < 2**31:
        raise InputError(
            f"{raw} does not give two ends for every edge, or no number of nodes: unpack the dataset again"
        )
    nodes = int(counts[0, 0])
    label = read_matrix(raw / "node-label.csv.gz", np.float32)
    attr = read_matrix(raw / "edge-feat.csv.gz", np.float32) if (raw / "edge-feat.csv.gz").exists() else None
    kind = next((raw / name for name in ("node_species.csv.gz", "species.csv.gz") if (raw / name).exists()), None)
    if (raw / "node-feat.csv.gz").exists():
        x = read_matrix(raw / "node-feat.csv.gz", np.float32)
    elif attr is not None:
        x = _mean_of_edges(edge, attr, nodes)  # ogbn-proteins has features only on its edges
    else:
        raise InputError(f"{raw} has neither node-feat.csv.gz nor edge-feat.csv.gz: unpack the dataset again")
    types = None
    if kind is not None:  # species are taxonomy numbers; types count from 0
        types = np.unique(read_matrix(kind, np.int64).reshape(-1), return_inverse=True)[1]
    fields = {"src": edge[:, 0], "dst": edge[:, 1], "x": x, "y": label, "num_nodes": nodes}
    return fields | {"edge_attr": attr, "node_type": types}


def _mean_of_edges(edge: np.ndarray, attr: np.ndarray, nodes: int) -> np.ndarray:
    """Return the mean of the attributes of each node's edges, the usual features for ogbn-proteins."""
    ends = edge.T.reshape(-1)
    if len(attr) != len(edge) or not len(edge) or ends.min() < 0 or ends.max() >= nodes:
        raise InputError(f"edge-feat.csv.gz or edge.csv.gz do not fit {nodes:,} nodes: unpack the dataset again")
    degree = np.maximum(np.bincount(ends, minlength=nodes), 1)
    both = np.concatenate([attr, attr])
    sums = [np.bincount(ends, both[:, column], minlength=nodes) for column in range(attr.shape[1])]
    return (np.stack(sums, axis=1) / degree[:, None]).astype(np.float32)


def _binary(raw: Path) -> dict[str, Any]:
    """Read data.npz (edge_index, num_nodes_list, node_feat) and node-label.npz (node_label, NaN = unlabelled)."""
    with NpzArrays(raw / "node-label.npz") as labels:
        labels.require("node_label")
        y = labels["node_label"]
    with NpzArrays(raw / "data.npz") as data:
        data.require("edge_index", "num_nodes_list", "node_feat")
        edge_index = data["edge_index"]
        if edge_index.ndim != 2 or len(edge_index) != 2:
            raise InputError(f"{raw / 'data.npz'}: edge_index is not [2, E]: unpack the dataset again")
        return {
            "src": edge_index[0],
            "dst": edge_index[1],
            "x": data["node_feat"],
            "y": y,
            "num_nodes": data.number("num_nodes_list"),
            "edge_attr": data.get("edge_feat"),
        }


def _masks(splits: Path, nodes: int) -> dict[str, Any]:
    kinds = sorted(kind for kind in splits.glob("*") if (kind / "train.csv.gz").exists())
    if not kinds:
        raise InputError(f"{splits} has no folder with train, valid and test.csv.gz: unpack the dataset again")
    masks = {}
    for name, key in zip(SPLITS, ("train_mask", "val_mask", "test_mask"), strict=True):
        path = kinds[0] / f"{name}.csv.gz"
        members = read_matrix(path, np.int64).reshape(-1)
        if len(members) and (members.min() < 0 or members.max() >= nodes):
            raise InputError(f"{path} names node {members.max()} of {nodes:,}: unpack the dataset again")
        masks[key] = np.zeros(nodes, bool)
        masks[key][members] = True
    return masks
