"""The server side of the store: the data that a worker has, and its answers to the requests of others."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from isthmus.comm import AsIs, Codec, Transport, Where
from isthmus.comm.rpc import LATER, Request
from isthmus.errors import InputError
from isthmus.features.embedding import Embedding
from isthmus.features.tables import NODE_DATA, Table
from isthmus.partition import Book, shares
from isthmus.sample import Expansion, NeighbourSampler, Structure

_SETUP = Where("store", "setup", 0, "ids")


class StoreOptions(NamedTuple):
    """The use of a store: who draws neighbours, by which sampler, and the code of feature rows on the wire."""

    structure: str = "here"
    """here: this worker reads the edges of all parts, if all are on this machine; owner: owners draw for the others."""
    sampler: NeighbourSampler | None = None
    codec: Codec = AsIs()
    edge_data: bool = False
    """Whether what edges carry is read as well: weights that are drawn by, attributes that are pulled."""
    files: bool = True
    """Whether parts of other workers that are on this machine are read from their files; if not, owners are asked."""


class StoreServer:
    """The data that one worker reads without asking: tables of the parts that are here, edges, learnt rows."""

    def __init__(self, book: Book, transport: Transport, options: StoreOptions):
        blocks = shares(book, transport.size)
        self.rank, self.size, self.options = transport.rank, transport.size, options
        self.ranges = torch.tensor([*(book.ranges[block.start] for block in blocks), book.nodes])
        lengths = torch.tensor([len(block) for block in blocks])
        self.owner_of_part = torch.repeat_interleave(torch.arange(self.size), lengths)
        mine = blocks[self.rank]
        self.here = torch.tensor([k in mine or (options.files and book.is_here(k)) for k in range(book.num_parts)])
        self.whole = options.structure == "here" and bool(self.here.all())
        self.tables = {name: Table.of(book, name, self.here.nonzero().flatten().tolist()) for name in NODE_DATA}
        self.embeddings: dict[str, Embedding] = {}
        self.num_edges = book.edges
        structure = Structure.of_book(book, None if self.whole else mine, data=options.edge_data)
        self.original, degree = (self._of_all(name, transport) for name in ("nodes", "degree"))
        self.by_id = torch.empty_like(self.original)  # book ids by original ids
        self.by_id[self.original] = torch.arange(len(self.original))
        ends = degree[self.by_id].cumsum(0)
        self.edge_starts = ends - degree[self.by_id]  # the number of each node's first edge, by original id
        own = self.original[structure.first : structure.first + structure.num_rows]
        self.structure = replace(structure, edge_starts=self.edge_starts[own])

    def _of_all(self, name: str, transport: Transport) -> Tensor:
        """Return a number of every node, int64 [N]: read from the parts, or gathered if some worker lacks a part."""
        everywhere = transport.all_reduce(self.here.all().long().view(1), _SETUP)
        if int(everywhere) == self.size:
            return self.tables[name].take(torch.arange(int(self.ranges[-1])))
        mine = torch.arange(int(self.ranges[self.rank]), int(self.ranges[self.rank + 1]))
        return torch.cat(transport.all_gather(self.tables[name].take(mine), _SETUP))

    def owner(self, ids: Tensor) -> Tensor:
        """Return the worker that owns each node (int64, book ids), int64."""
        return torch.searchsorted(self.ranges, ids, right=True) - 1

    def targets(self, edges: Tensor) -> Tensor:
        """Return the target of each edge, as book ids; edges are numbered by (target, source) in original ids."""
        return self.by_id[torch.searchsorted(self.edge_starts, edges, right=True) - 1]

    def like(self, name: str) -> Tensor:
        """Return no row at all of a table."""
        if name in self.embeddings:
            return self.embeddings[name].rows[:0]
        if name not in self.tables:
            known = ", ".join([*self.tables, *self.embeddings])
            raise InputError(f"the store has no {name!r}: use one of {known}")
        return self.tables[name].like

    def codec(self, name: str) -> Codec:
        """Return the code of a table's rows on the wire: features may have one, all others go as they are."""
        return self.options.codec if name == "x" and self.tables["x"].like.is_floating_point() else AsIs()

    @property
    def edge_data(self) -> Tensor:
        """The data of the edges that are here, [edges] or [edges, D], in the order of the structure."""
        if self.structure.data is None:
            raise InputError("the store has no data of edges: open it with StoreOptions(edge_data=True)")
        return self.structure.data

    def data_of(self, edges: Tensor) -> Tensor:
        """Return what some edges carry, whose targets are here, [e] or [e, D]."""
        target = self.targets(edges)
        row = self.structure.rows_of(target).long()
        first = self.structure.pattern.indptr[row] - self.edge_starts[self.original[target]]
        return self.edge_data[edges + first]

    def answer(self, request: Request) -> list[Tensor] | None:
        """Answer another worker; what is asked for in vain is refused in words."""
        about, tensors = request.about, request.tensors
        kind = request.what.partition(" ")[0]
        if kind == "push":
            return self._take(request)
        (ids,) = tensors
        if kind == "pull":
            return self._rows(str(about["name"]), self._checked(ids), request.step)
        if kind == "sample":
            sampler = NeighbourSampler(**{**about["sampler"], "fanouts": tuple(about["sampler"]["fanouts"])})
            found = sampler.expand(
                self.structure, self._checked(ids), request.step, int(about["hop"]), edges=bool(about["edges"])
            )
            return as_tensors(found)
        if kind == "edges":
            return [self.data_of(_between(ids, 0, self.num_edges))]
        raise InputError(f"a store is not asked for {kind[:40]!r}")

    def _rows(self, name: str, ids: Tensor, step: int) -> list[Tensor] | None:
        like, first = self.like(name), self.ranges[self.rank]
        if name in self.embeddings:
            table = self.embeddings[name]
            return [table.read(ids - first, step, 0.0)] if table.is_at(step) else LATER
        if self.tables[name].is_sparse:
            return self.tables[name].take_sparse(ids)
        rows, codec = self.tables[name].take(ids), self.codec(name)
        if codec.as_is:
            return [rows]
        width, dtype = codec.form(like.shape[1], like.dtype)
        message = torch.empty(len(rows), width, dtype=dtype)
        codec.encode(rows, None, message, 0, None)
        return [message]

    def _take(self, request: Request) -> list[Tensor] | None:
        name, (ids, gradients) = str(request.about["name"]), request.tensors
        table = self.embeddings.get(name)
        if table is None:
            raise InputError(f"there is no embedding {name[:40]!r} here yet")
        if gradients.shape != (len(ids), table.width) or not gradients.is_floating_point():
            raise InputError(f"{name} has rows of {table.width} numbers")
        if not table.is_at(request.step):
            return LATER
        rows = self._checked(ids) - self.ranges[self.rank]
        table.add(request.asker, rows.clone(), gradients.clone(), request.step, last=bool(request.about["last"]))
        return []

    def _checked(self, ids: Tensor) -> Tensor:
        """Refuse nodes that this worker does not own."""
        return _between(ids, int(self.ranges[self.rank]), int(self.ranges[self.rank + 1]))


def as_tensors(drawn: Expansion) -> list[Tensor]:
    """Return an expansion as a message; `joined` reads it."""
    rest = (drawn.weight, drawn.edges)
    return [drawn.indptr.diff(), drawn.neighbours.long(), drawn.scale, *(one for one in rest if one is not None)]


def _between(ids: Tensor, first: int, last: int) -> Tensor:
    """Refuse ids outside of a range: kernels use them unchecked."""
    if ids.dtype != torch.int64 or ids.ndim != 1:
        raise InputError("ids are int64 [m]")
    if len(ids) and not first <= int(ids.min()) <= int(ids.max()) < last:
        raise InputError(f"this worker is asked for {first} to {last - 1} alone: ask the owners of the others")
    return ids
