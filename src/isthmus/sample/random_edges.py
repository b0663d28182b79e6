"""The baselines of BNS-GCN's table 9: edges are dropped instead of boundary nodes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.errors import InputError
from isthmus.kernels import Csr
from isthmus.sample.drawn import Pattern
from isthmus.sample.edges import Edges
from isthmus.sample.scene import Scene
from isthmus.sample.sizes import Sizes

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
    refresh: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise InputError(f"rate is the share of edges kept: it must be above 0 and at most 1, not {self.rate}")

    def kept(self, cut: int, edges: int) -> float:
        """The probability that an edge stays, in a graph of that many edges between parts and in all."""
        return self.rate if self.among == "boundary" else 1 - (1 - self.rate) * cut / max(edges, 1)

    def draw(self, scene: Scene, step: int, sizes: Sizes | None = None) -> Edges:
        whole = scene.whole
        if self.rate == 1:
            return whole
        p = self.kept(*whole.totals(scene.transport))
        key = kernels.stream(scene.seed, step, _SALT)
        kept = kernels.draw_edges(key, whole.halo, whole.nodes, whole.halo_nodes, p, whole.symmetric)
        halo, halo_kept = kernels.select_edges(whole.halo, kept)
        inner, inner_out, inner_kept = None, None, torch.arange(whole.inner.num_edges if whole.edge_attributes else 0)
        if self.among == "all":
            kept = kernels.draw_edges(key, whole.inner, whole.nodes, whole.nodes, p, whole.symmetric)
            csr, inner_kept = kernels.select_edges(whole.inner, kept)
            inner = self._weighted(csr, p, scene.dtype)
            inner_out = inner if whole.symmetric else self._weighted(kernels.transpose(csr)[0], p, scene.dtype)
        attributes = None
        if whole.edge_attributes is not None:
            of_inner, of_halo = whole.attributes()
            attributes = of_inner[inner_kept], of_halo[halo_kept]
        halo_out = self._weighted(kernels.transpose(halo)[0], p, scene.dtype)
        halo_in = self._weighted(halo, p, scene.dtype)
        return scene.with_edges(scene.ask(halo, step), halo_in, halo_out, inner, inner_out, attributes)

    def inclusion(self, scene: Scene, sizes: Sizes | None = None) -> Tensor:
        readers = scene.whole.halo_out.indptr.diff().double()
        return 1 - (1 - self.kept(*scene.whole.totals(scene.transport))) ** readers

    def _weighted(self, csr: Csr, p: float, dtype: torch.dtype) -> Pattern:
        return Pattern(csr, torch.full((csr.num_edges,), 1 / p, dtype=dtype))
