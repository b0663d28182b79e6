"""The baselines of BNS-GCN's table 9: edges are dropped instead of boundary nodes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm import Links, Transport, Where, flags
from isthmus.errors import InputError
from isthmus.sample.drawn import Drawn
from isthmus.sample.edges import Edges

_SALT = 0xED6E


@dataclass(frozen=True)
class RandomEdges:
    """Each edge that may be dropped is kept with one probability, and counts its inverse.

    As many edges are dropped, on average, as boundary-node sampling drops at ``rate``: of E_cut edges between parts,
    (1 − rate) E_cut. ``among="boundary"`` takes them from the edges between parts (Boundary Edge Sampling),
    ``among="all"`` from all E edges (DropEdge). The two directions of an undirected edge share their fate.
    """

    rate: float = 0.1
    among: str = "boundary"

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise InputError(f"rate is the share of edges kept: it must be above 0 and at most 1, not {self.rate}")

    def kept(self, cut: int, edges: int) -> float:
        """The probability that an edge stays, in a graph of that many edges between parts and in all."""
        return self.rate if self.among == "boundary" else 1 - (1 - self.rate) * cut / max(edges, 1)

    def draw(self, whole: Edges, seed: int, step: int, transport: Transport) -> Edges:
        if self.rate == 1:
            return whole
        p = self.kept(*whole.totals(transport))
        key = kernels.stream(seed, step, _SALT)
        inner, inner_kept = None, None
        if self.among == "all":
            drawn = kernels.draw_edges(key, whole.inner, whole.nodes, whole.nodes, p, whole.symmetric)
            inner, inner_kept = kernels.select_edges(whole.inner, drawn)
        kept = kernels.draw_edges(key, whole.halo, whole.nodes, whole.halo_nodes, p, whole.symmetric)
        read = torch.zeros(whole.num_halo, dtype=torch.bool)
        read[whole.halo.indices[kept].long()] = True
        number = read.cumsum(0, dtype=torch.int32) - 1
        picked = read.nonzero().flatten()
        halo, halo_kept = kernels.select_edges(whole.halo, kept, number, len(picked))
        attributes = None
        if whole.edge_attributes is not None:
            of_inner, of_halo = whole.edge_attributes
            attributes = (of_inner if inner_kept is None else of_inner[inner_kept], of_halo[halo_kept])
        links = ask(whole.links, read, transport, step)
        scale = torch.full((len(picked),), 1 / p, dtype=torch.float64)
        return Drawn(whole, links, picked, halo, scale, inner, 1.0 if inner is None else 1 / p, attributes)


def ask(links: Links, read: Tensor, transport: Transport, step: int) -> Links:
    """The links of the halo rows that are read (bool [h]): their owners hear of them, one bit per row."""
    wanted = links.halo.split(read)
    heard = [flags.room(len(rows)) for rows in links.send_rows]
    where = Where("drawn graph", "backward", step, "ids")
    transport.exchange([flags.pack(rows) for rows in wanted], heard, where).wait()
    sent = [flags.unpack(bits, len(rows)) for bits, rows in zip(heard, links.send_rows, strict=True)]
    halo = [rows.nonzero().flatten().to(torch.int32) for rows in wanted]
    send_rows = [rows[chosen.long()] for rows, chosen in zip(links.send_rows, sent, strict=True)]
    return Links(send_rows, [len(rows) for rows in halo], sent, halo)
