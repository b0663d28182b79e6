"""Cluster-GCN's batches: a few clusters of the graph, with the edges between them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm import Transport, Where
from isthmus.errors import InputError
from isthmus.partition import metis
from isthmus.partition.adjacency import symmetric_csr
from isthmus.partition.methods import fill_empty
from isthmus.sample.joint import Scene
from isthmus.sample.structure import Structure
from isthmus.sample.subgraphs import Counts, Induced, Subgraphs

_SALT = 0xC105
DEGREES = ("batch", "graph")


@dataclass(frozen=True)
class Clusters:
    """Draws ``per_batch`` of ``clusters`` clusters for each step, every cluster once in an epoch.

    ``clusters`` 0: as many as make batches of --batch-size nodes. ``degrees`` "batch": norms divide by the numbers of
    neighbours inside the batch, as published. "graph": by those in the whole graph, and an edge between two clusters
    counts 1 / (probability that both are in a batch, if one is), so that aggregations are right on average.
    """

    clusters: int = 0
    per_batch: int = 20
    degrees: str = "batch"

    def __post_init__(self) -> None:
        if self.clusters < 0 or self.per_batch < 1:
            raise InputError(
                "clusters must be at least 0 (by --batch-size) and per_batch at least 1, "
                f"not {self.clusters} and {self.per_batch}"
            )
        if self.degrees not in DEGREES:
            raise InputError(f"unknown degrees {self.degrees!r}: use {' or '.join(DEGREES)}")
        if self.degrees == "graph" and self.per_batch == 1 and self.clusters != 1:
            raise InputError("degrees=graph makes up for edges between clusters: set per_batch to 2 or more")

    @property
    def sized(self) -> bool:
        return not self.clusters

    def count(self, nodes: int, size: int) -> int:
        """Return the number of clusters of a graph of so many nodes, if batches are to have ``size``."""
        if self.clusters > nodes:
            raise InputError(f"a graph of {nodes:,} nodes has no {self.clusters:,} clusters: set clusters to fewer")
        return self.clusters or min(nodes, max(1, -(-nodes * self.per_batch // size)))

    def steps_per_epoch(self, nodes: int, labelled: int, size: int) -> int:
        return -(-self.count(nodes, size) // self.per_batch)

    def start(self, scene: Scene, transport: Transport) -> ClusterDraw:
        count = self.count(scene.structure.num_rows, scene.size)
        mine = make_clusters(scene.structure, count, scene.seed if transport.rank == 0 else None)
        every = torch.cat(transport.all_gather(mine, Where("clusters", "setup", 0, "ids")))
        return ClusterDraw(scene, self, every)


def make_clusters(structure: Structure, count: int, seed: int | None) -> Tensor:
    """Return the cluster of every node by METIS, int64 [N]; without a seed none: another worker makes them.

    METIS sees nodes and neighbours in the order of their original ids, so no partition changes its result.
    """
    if seed is None:
        return torch.empty(0, dtype=torch.int64)
    original = torch.arange(structure.num_rows) if structure.original is None else structure.original
    rows, _ = structure.pattern.take(torch.argsort(original))
    columns = original[rows.indices.long()].to(torch.int32)
    indptr, indices, weights = symmetric_csr(rows.indptr.numpy(), columns.numpy())
    found = metis.kway(indptr, indices, count, metis.MetisOptions(seed=seed), edge_weights=weights)
    filled = fill_empty(found, count, np.diff(indptr))
    return torch.from_numpy(filled.astype(np.int64))[original]


class ClusterDraw(Subgraphs):
    """The clusters of every step: in each epoch all of them in an order that is a function of (seed, epoch)."""

    def __init__(self, scene: Scene, asked: Clusters, cluster: Tensor):
        """``cluster``: int64 [N], the cluster of every node."""
        super().__init__(scene)
        self.asked, self.cluster = asked, cluster
        self.members = torch.argsort(cluster, stable=True)
        self.ends = torch.cat([cluster.new_zeros(1), torch.bincount(cluster).cumsum(0)]).tolist()
        count, most = len(self.ends) - 1, asked.per_batch
        self.sizes = [min(most, count - first) for first in range(0, count, most)]
        pairs = sum(size * (size - 1) for size in self.sizes)
        self.chance = pairs / (count * (count - 1)) if count > 1 else 1.0

    def nodes(self, step: int) -> Tensor:
        members = [self.members[self.ends[k] : self.ends[k + 1]] for k in self.chosen(step).tolist()]
        return torch.cat(members)

    def chosen(self, step: int) -> Tensor:
        """Return the clusters of a step, int64."""
        epoch, within = divmod(step, len(self.sizes))
        keys = kernels.random_keys(kernels.stream(_SALT, self.scene.seed, epoch), torch.arange(len(self.ends) - 1))
        first = within * self.asked.per_batch
        return torch.argsort(keys, stable=True)[first : first + self.sizes[within]]

    def counts(self, found: Induced) -> Counts:
        if self.asked.degrees == "batch":
            return Counts(degree=found.csr.indptr.diff())
        cluster = self.cluster[found.nodes]
        same = cluster[found.csr.edge_rows] == cluster[found.csr.indices.long()]
        return Counts(torch.where(same, 1.0, 1.0 / self.chance).double())
