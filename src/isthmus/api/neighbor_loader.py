"""`isthmus.NeighborLoader`: mini-batches as PyG's loader of that name gives them, without pyg-lib."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.api.worker import Worker
from isthmus.device import on_host
from isthmus.errors import InputError
from isthmus.kernels.twin import GOLDEN
from isthmus.minibatch.source import SPLITS, DataSource, Source, open_source
from isthmus.minibatch.store_source import StoreSource
from isthmus.minibatch.subgraph import TYPES, Subgraph, SubgraphSampler, Times
from isthmus.sample import NeighbourSampler

try:
    from torch_geometric.data import Data
    from torch_geometric.loader import NodeLoader
    from torch_geometric.sampler import NodeSamplerInput, SamplerOutput
except ImportError as error:
    raise InputError("NeighborLoader gives PyG's Data, and PyG is not installed: pip install 'isthmus[pyg]'") from error


class NeighborLoader(NodeLoader):
    """A loader of sampled subgraphs with the arguments and the batches of PyG's `NeighborLoader`.

    ``source`` is PyG `Data`, or anything that Isthmus trains: a `Graph`, a file, ``synthetic:…``, or a folder of parts,
    whose rows then stay in memory-mapped files; or an `isthmus.Worker`, whose store asks other workers for what is not
    on this machine. ``input_nodes`` may also be "train", "val" or "test"; of a worker, its share of them.

    Beside PyG's arguments: ``method="labor"`` reads fewer distinct rows (LABOR-0); ``seed`` (default: drawn by torch's
    generator, so that `torch.manual_seed` governs it) keys the draws. A batch is a function of (seed, epoch, its input
    nodes), whatever ``num_workers`` is. ``is_sorted`` is accepted; edges are put in order in any case.
    """

    def __init__(
        self,
        source: Any,
        num_neighbors: Sequence[int],
        input_nodes: Tensor | Sequence[int] | str | None = None,
        input_time: Tensor | None = None,
        replace: bool = False,
        subgraph_type: str = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        weight_attr: str | None = None,
        transform: Callable | None = None,
        transform_sampler_output: Callable | None = None,
        is_sorted: bool = False,
        filter_per_worker: bool | None = None,
        *,
        method: str = "uniform",
        seed: int | None = None,
        **kwargs: Any,
    ):
        if isinstance(num_neighbors, dict):
            raise InputError(
                "num_neighbors by edge type is for typed graphs, which have no sampler here yet: give a list"
            )
        if kwargs.get("persistent_workers"):
            raise InputError("persistent_workers would repeat the draws of the first epoch: leave it out")
        kind = str(getattr(subgraph_type, "value", subgraph_type))
        self.source = _opened(source, weight_attr, kwargs)
        self.node_sampler = _PygSampler(
            self.source,
            NeighbourSampler(
                tuple(num_neighbors),
                _method(method, weight_attr, time_attr),
                replace,
                int(torch.randint(2**31, ())) if seed is None else seed,
            ),
            kind,
            disjoint,
            _times(self.source, time_attr, temporal_strategy, input_time),
        )
        nodes = (
            self.source.split(input_nodes) if isinstance(input_nodes, str) and input_nodes in SPLITS else input_nodes
        )
        data = source if isinstance(self.source, DataSource) else Data(num_nodes=self.source.num_nodes)
        super().__init__(
            data=data,
            node_sampler=self.node_sampler,
            input_nodes=nodes,
            input_time=input_time,
            transform=transform,
            transform_sampler_output=transform_sampler_output,
            filter_per_worker=filter_per_worker,
            **kwargs,
        )

    def __iter__(self) -> Iterator[Any]:
        self.node_sampler.epoch += 1
        return super().__iter__()

    def filter_fn(self, out: SamplerOutput) -> Any:
        """Return the batch of what was sampled: PyG calls this in the main process, or in the worker's."""
        if self.transform_sampler_output:
            out = self.transform_sampler_output(out)
        data = copy.copy(self.data)
        for name in self.source.names:
            data[name] = self.source.pull(name, out.node)
        for name in self.source.edge_names:
            data[name] = None if out.edge is None else self.source.pull_edges(name, out.edge)
        data.edge_index = torch.stack([out.row, out.col])
        if "num_nodes" in data:
            data.num_nodes = len(out.node)
        data.n_id, data.e_id = self.source.user_ids(out.node), out.edge
        data.batch = out.batch
        data.num_sampled_nodes, data.num_sampled_edges = out.num_sampled_nodes, out.num_sampled_edges
        data.input_id, data.seed_time = out.metadata
        data.batch_size = len(out.metadata[0])
        return data if self.transform is None else self.transform(data)


class _PygSampler:
    """The sampler that PyG's `NodeLoader` calls for every batch, in this process or in one of its workers."""

    def __init__(
        self, source: Source, sampler: NeighbourSampler, kind: str, disjoint: bool, times: tuple[Times, str] | None
    ):
        if kind not in TYPES:
            raise InputError(f"unknown subgraph_type {kind!r}: use {', '.join(TYPES)}")
        if kind == "induced" and (disjoint or times):
            raise InputError("induced subgraphs of single seed nodes are not made: leave disjoint and time_attr out")
        self.source, self.kind, self.epoch = source, kind, 0
        ordered, strategy = times or (None, "uniform")
        elsewhere = source.elsewhere(sampler) if isinstance(source, StoreSource) else None
        if elsewhere is not None and (disjoint or kind == "induced"):
            raise InputError(
                "disjoint and induced subgraphs are made where all edges are: copy all parts to every machine"
            )
        self.subgraphs = SubgraphSampler(
            source.structure, sampler, disjoint=disjoint, times=ordered, strategy=strategy, elsewhere=elsewhere
        )

    def sample_from_nodes(self, inputs: NodeSamplerInput) -> SamplerOutput:
        seeds = self.source.local(inputs.node)
        place = torch.arange(1, 2 * len(seeds), 2)
        of_batch = int((inputs.node * (GOLDEN - 2**64) * place).sum())  # int64 wraps around, the same everywhere
        drawn = self.subgraphs.draw(seeds, kernels.stream(self.epoch, of_batch), inputs.time)
        if self.kind == "induced":
            drawn = self._induced(drawn, seeds)
        out = SamplerOutput(
            node=drawn.nodes,
            row=drawn.row,
            col=drawn.col,
            edge=drawn.edges,
            batch=drawn.tree,
            num_sampled_nodes=drawn.nodes_per_hop,
            num_sampled_edges=drawn.edges_per_hop,
            metadata=(inputs.input_id, inputs.time),
        )
        return out.to_bidirectional() if self.kind == "bidirectional" else out

    def _induced(self, drawn: Subgraph, seeds: Tensor) -> Subgraph:
        if len(seeds.unique()) != len(seeds):
            raise InputError("an induced subgraph has each node once: give each input node once")
        return self.subgraphs.induced(drawn.nodes)


def _opened(source: Any, weight_attr: str | None, loading: dict[str, Any]) -> Source:
    """Return what batches are made from; a worker's store is opened, by all workers at the same time."""
    if not isinstance(source, Worker):
        return open_source(source, weight_attr)
    if loading.get("num_workers"):
        raise InputError("the loader of an isthmus.Worker asks from its own process: leave num_workers out")
    if weight_attr not in (None, "edge_attr", "edge_weight"):
        raise InputError(f"unknown weight_attr {weight_attr!r}: the edges of parts have one attribute, edge_attr")
    return StoreSource(source.store())


def _method(method: str, weight_attr: str | None, time_attr: str | None) -> str:
    if weight_attr is None:
        return method
    if time_attr is not None or method != "uniform":
        raise InputError("weight_attr goes neither with time_attr nor with labor: choose one of them")
    return "weighted"


def _times(source: Source, time_attr: str | None, strategy: str, input_time: Tensor | None) -> tuple[Times, str] | None:
    if time_attr is None:
        if input_time is not None:
            raise InputError("input_time is heeded only with time_attr: name the attribute that holds the times")
        return None
    if not isinstance(source, DataSource):
        raise InputError("time_attr names an attribute of PyG data: give the loader that")
    data = source.data
    if data.is_node_attr(time_attr):
        return Times.of(source.structure, on_host(data[time_attr]), None), strategy
    if data.is_edge_attr(time_attr):
        return Times.of(source.structure, None, on_host(data[time_attr])), strategy
    raise InputError(f"time_attr {time_attr!r} is an attribute neither of the nodes nor of the edges of this data")
