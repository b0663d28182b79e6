"""Cluster-GCN: each step trains on a few clusters of the graph and the edges between them."""

from isthmus.local import Policy
from isthmus.recipes.base import MINI_BATCH, Option, Recipe, Settings
from isthmus.recipes.common import BATCHED, mini_batches
from isthmus.sample.clusters import DEGREES, Clusters


def _policy(settings: Settings) -> Policy:
    clusters = Clusters(settings["clusters"], settings["per_batch"], settings["degrees"])
    return mini_batches(settings, joint=clusters)


CLUSTER_GCN = Recipe(
    name="cluster-gcn",
    summary="mini-batches of a few METIS clusters with the edges between them, each node computed by its owner",
    paper="Chiang et al., Cluster-GCN (KDD 2019)",
    make=_policy,
    plane=MINI_BATCH,
    options={
        "clusters": Option(0, "clusters of the graph; 0: so many that batches have --batch-size nodes"),
        "per_batch": Option(20, "clusters of a step"),
        "degrees": Option("batch", "neighbours that norms count: of the batch (as published) or the graph", DEGREES),
        **BATCHED,
    },
    notes="Clusters are those of the whole graph, whatever its parts, so every number of workers has the same batches.",
)
