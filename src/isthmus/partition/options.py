"""The options of cutting a graph."""

from __future__ import annotations

from dataclasses import dataclass

from isthmus.options import option
from isthmus.partition.book import CUTS
from isthmus.partition.bytegnn import ASSIGNMENTS
from isthmus.partition.methods import METHODS
from isthmus.partition.order import ORDERS
from isthmus.partition.vertex import VERTEX_METHODS
from isthmus.partition.vertex.options import HOST_SCORES


@dataclass(frozen=True)
class PartitionOptions:
    """The options that say how a graph is cut, ordered and written. None: the method's default."""

    method: str | None = option(
        None,
        "How to cut: {choices}, or package.module:NAME.",
        "Cutting",
        "train compare plan partition Worker",
        choices=(*METHODS, *(name for name in VERTEX_METHODS if name not in METHODS)),
        outside=True,
    )
    """None: "metis"; for a vertex-cut "hep"."""
    cut: str = option("edge", "Where edges live: {choices}.", "Cutting", "partition", choices=CUTS)
    """"edge": with the owner of their target; "cover": at either end, so that the fewest rows are sent; "vertex":
    anywhere."""
    objective: str | None = option(None, "What metis minimises: cut or vol.", "Cutting", "partition")
    balance: tuple[str, ...] | None = option(
        None,
        "Loads of which parts get equal shares, e.g. nodes,edges,train,val,test.",
        "Cutting",
        "partition",
        accepts="str | Sequence[str] | None",
    )
    tolerance: float | None = option(None, "How far a load may exceed the mean: 0.03 is 3 %.", "Cutting", "partition")
    passes: int | None = option(
        None, "How many times ldg (bytegnn: in its end) reads the graph.", "Cutting", "partition"
    )
    hops: int | None = option(
        None, "How far bytegnn's blocks reach: the model's layers.", "Cutting", "partition", least=1
    )
    assignment: str | None = option(
        None, "How bytegnn assigns blocks: {choices}.", "Cutting", "partition", choices=tuple(ASSIGNMENTS)
    )
    """None: "multilevel" where at most a tenth of the nodes is labelled, else "greedy"."""
    hosts: int | None = option(None, "Machines that will train the parts, for ebv.", "Cutting", "partition", least=1)
    gamma: float | None = option(
        None, "Weight of replicas on other hosts, for ebv; 0.1 with several hosts.", "Cutting", "partition"
    )
    host_score: str | None = option(
        None, "What gamma weighs, for ebv: {choices}.", "Cutting", "partition", choices=HOST_SCORES
    )
    """"messages" (None): rows that cross between hosts; "as-published": first replicas on another host."""
    tau: float | None = option(
        None, "Multiple of the mean degree above which hep streams; as memory allows.", "Cutting", "partition"
    )
    order: str | None = option(None, "Order of nodes inside a part: {choices}.", "Cutting", "partition", choices=ORDERS)
    """None: "metis", but "ldg" with the methods ldg and bytegnn or above 200M edges per part."""
    block_nodes: int = option(4000, "Nodes per locality block of a part.", "Cutting", "partition")
    seed: int = option(0, "For every random draw.", "Other", "partition")
    overwrite: bool = option(False, "Replace an existing parts folder.", "Run", "partition")
