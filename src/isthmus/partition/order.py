"""Order the nodes inside a part so that rows which are read together are close in memory.

A part is cut once more, into blocks of a few thousand nodes whose rows fit a core's cache, and numbered block by block.
"""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from isthmus.errors import InputError
from isthmus.partition import metis
from isthmus.partition.adjacency import symmetric_csr
from isthmus.partition.ldg import ldg

ORDERS = MappingProxyType(
    {
        "metis": "METIS sub-blocks: the best locality (about 100 bytes of memory per edge of the part)",
        "ldg": "streamed sub-blocks: little memory",
        "given": "as in the input",
    }
)


def check_order(order: str, block_nodes: int) -> None:
    """Refuse an unknown order or an impossible block size."""
    if order not in ORDERS:
        raise InputError(f"unknown order '{order}': choose one of {', '.join(ORDERS)}")
    if block_nodes < 1:
        raise InputError(f"block_nodes must be at least 1, not {block_nodes}: 4000 suits most caches")


def locality_order(
    indptr: np.ndarray,
    indices: np.ndarray,
    *,
    symmetric: bool = True,
    order: str = "metis",
    block_nodes: int = 4000,
    seed: int = 0,
) -> np.ndarray:
    """Return the nodes in an order of good locality: int64 [N], a permutation; by descending degree inside a block."""
    check_order(order, block_nodes)
    nodes = len(indptr) - 1
    blocks = -(-nodes // block_nodes)
    if order == "given":
        return np.arange(nodes)
    degree = np.diff(indptr)
    if blocks < 2:
        return np.argsort(-degree, kind="stable")
    if order == "metis":  # blocks with close numbers are close in the graph, due to recursive bisection
        weights = None
        if not symmetric:
            indptr, indices, weights = symmetric_csr(indptr, indices)
        block = metis.kway(indptr, indices, blocks, metis.MetisOptions(iterations=3, seed=seed), edge_weights=weights)
    else:
        block = ldg(indptr, indices, blocks)
    return np.lexsort((-degree, block))
