"""Put together the maker of one worker's batches."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from isthmus.comm import Transport, Where
from isthmus.errors import InputError
from isthmus.features.part_files import PartFiles
from isthmus.features.scaling import Scaling
from isthmus.kernels import SparseMatrix
from isthmus.kernels.pages import give_back, read_at_random
from isthmus.minibatch.apart import AtOwners, Here
from isthmus.minibatch.batch import BatchMaker, Expander, Neighbourhoods, Order
from isthmus.minibatch.cache import Cache, ListCache, most_worth
from isthmus.minibatch.joint import Joint
from isthmus.minibatch.missed import Controlled
from isthmus.minibatch.pairs import Pairing
from isthmus.minibatch.policy import BatchConfig, BatchPolicy
from isthmus.minibatch.requests import Requests
from isthmus.minibatch.rows import Rows
from isthmus.minibatch.seeds import SeedOrder, Shares
from isthmus.minibatch.together import Together
from isthmus.minibatch.worth import row_worth
from isthmus.partition import Book, own_part, shares
from isthmus.sample import NeighbourSampler, Scene, Structure
from isthmus.shard.load import as_tensor


@dataclass(frozen=True)
class NodeData:
    """The data of one worker's own nodes: feature rows, labels, and which of them are training nodes."""

    x: Tensor | SparseMatrix  # [n, F]
    y: Tensor  # [n] or [n, C]
    train: Tensor  # int64, rows
    dtype: torch.dtype | None = None
    """The dtype of a batch's feature rows; None: as in x."""
    scaling: Scaling | None = None
    """What x has become by, from the features in the files; None: x is not theirs, so nobody reads other files."""
    weighted: bool = False
    """Whether every edge of a batch counts by the weight that it carries."""
    edge_data: bool = False
    """Whether batches carry what their edges carry, though nothing here counts by it."""


def batch_maker(
    book: Book, asked: BatchConfig, policy: BatchPolicy, transport: Transport, data: NodeData, seed: int
) -> BatchMaker:
    """Return the maker of this worker's batches; every worker calls it at the same time.

    It works over a sibling of ``transport``, so that a thread may use it beside the training loop.
    """
    if asked.way == "together" and policy.share != "owner":
        raise InputError(f"joint batches are computed by owners: share must be owner, not {policy.share}")
    blocks, own = shares(book, transport.size), own_part(book, transport.rank, transport.size)
    ranges = torch.tensor([*(book.ranges[block.start] for block in blocks), book.nodes])
    draws = seed if policy.seed is None else policy.seed
    requests = Requests(transport.sibling(), ranges)
    original = as_tensor(own.nodes)
    train = data.train + requests.first
    order = SeedOrder.of_workers(train, original[data.train], asked.size, draws, transport)
    sampler = policy.sampler(asked.fanouts, seed)
    here = policy.joint is not None or (asked.way == "apart" and asked.structure == "here")
    carries = policy.draw == "weighted" or data.weighted or data.edge_data
    structure = Structure.of_book(book, None if here else blocks[transport.rank], data=carries, numbered=False)
    if structure.data is not None and structure.data.is_floating_point():
        structure = replace(structure, data=structure.data.to(data.x.dtype))
    expander: Expander
    seeds: Order = order
    if policy.joint is not None:
        scene = Scene(structure, order.nodes, order.at, len(asked.fanouts), asked.size, draws, data.weighted)
        seeds = draw = policy.joint.start(scene, requests.transport)
        expander = (Controlled if policy.history else Joint)(scene, draw, requests)
    elif here:
        expander = Here(sampler, structure, data.weighted)
    else:
        kind = AtOwners if asked.way == "apart" else Together
        expander = kind(sampler, structure, requests, own, data.weighted)
    pairing = None
    if asked.pairs is not None:
        if not isinstance(expander, Here | AtOwners) or (
            expander.structure.num_rows < book.nodes and policy.share != "owner"
        ):
            raise InputError(
                "pairs of nodes are drawn by the owners of seed nodes or from all edges: give --batch apart, and "
                "share=owner or --structure here"
            )
        about = original, as_tensor(own.degree)
        pairing = Pairing(asked.pairs, expander, draws, about, requests.transport)
    read = _parts_here(book, asked, transport) if data.scaling is not None and data.x.shape[1] else ()
    files = PartFiles.of(book, read, data.x.dtype, data.scaling or Scaling()) if read else None
    everywhere = _all_agree(len(read) + len(blocks[transport.rank]) == book.num_parts, transport)
    rows = Rows(data.x, requests, policy.rows, draws, dtype=data.dtype, files=files, asks=not everywhere)
    room = policy.cache.room(len(original))
    if room and rows.asks and transport.size > 1 and rows.width:
        every = structure if here else Structure.of_book(book, numbered=False)
        worth = row_worth(every, order.nodes, asked, policy, requests.own, transport.size)
        worth[requests.own] = 0
        for part in read:
            worth[book.ranges[part] : book.ranges[part + 1]] = 0
        chosen = most_worth(worth, room)
        kept = rows.pull(chosen, 0, "cache")
        rows.cache = ListCache(chosen, kept, worth) if policy.cache.order == "list" else Cache(chosen, kept)
    for held in (data.x, *(files.table.pieces.values() if files is not None else ())):
        if isinstance(held, Tensor):
            read_at_random(held)
    give_back()
    return BatchMaker(
        order=seeds,
        shares=Shares(policy.share, ranges, order.nodes.sort().values),
        expander=expander,
        rows=rows,
        labels=Rows(data.y if data.y.dim() == 2 else data.y.view(-1, 1), requests, asks=policy.share != "owner"),
        transport=requests.transport,
        pairing=pairing,
        look_ahead=policy.cache.looks_ahead,
    )


def _parts_here(book: Book, asked: BatchConfig, transport: Transport) -> list[int]:
    """Return the parts of other workers whose feature rows this worker reads from their files."""
    if asked.rows == "owner" or asked.way == "together":
        return []
    near = [asked.rows == "here" or host == transport.hosts[transport.rank] for host in transport.hosts]
    near[transport.rank] = False
    blocks = shares(book, transport.size)
    return [k for worker, block in enumerate(blocks) if near[worker] for k in block if book.is_here(k)]


def _all_agree(yes: bool, transport: Transport) -> bool:
    """Return whether all workers say yes."""
    return int(transport.all_reduce(torch.tensor([int(yes)]), Where("rows", "setup", 0, "ids"))) == transport.size


def other_fanouts(maker: BatchMaker, fanouts: tuple[int, ...], seed: int, x: Tensor | SparseMatrix) -> Neighbourhoods:
    """Return neighbourhoods drawn uniformly by other fanouts, with rows as they are, from what a maker has read.

    They have connections of their own, so that they may be used beside the maker. ``x``: this worker's rows. Every
    worker calls it at the same time.
    """
    requests = Requests(maker.transport.sibling(), maker.rows.requests.ranges)
    sampler, drawn = NeighbourSampler(fanouts, seed=seed), maker.expander
    assert isinstance(drawn, Here | Joint | AtOwners | Together)
    expander: Expander
    if isinstance(drawn, Here | Joint):
        expander = Here(sampler, drawn.structure, drawn.weighted)
    else:
        expander = AtOwners(sampler, drawn.structure, requests, drawn.part, drawn.weighted)
    return Neighbourhoods(expander, Rows(x, requests, files=maker.rows.files, asks=maker.rows.asks))
