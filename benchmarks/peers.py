"""The same models through PyG, in each of its full-batch forms: what Isthmus is measured against."""

from __future__ import annotations

import os
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

FORMS = ("edge_index", "csr")  # gather and scatter, a row written out for every edge; torch's sparse matrix product


def adjacency(edge_index: Tensor, nodes: int, form: str):
    """The graph as PyG takes it: a list of edges, or a sparse CSR matrix with a row per target."""
    if form == "edge_index":
        return edge_index
    order = torch.argsort(edge_index[1] * nodes + edge_index[0])
    source, target = edge_index[0][order], edge_index[1][order]
    indptr = torch.cat([torch.zeros(1, dtype=torch.long), torch.bincount(target, minlength=nodes).cumsum(0)])
    return torch.sparse_csr_tensor(indptr, source, torch.ones(len(source)), (nodes, nodes))


def fits(form: str, edges: int, width: int) -> bool:
    """Whether a form's rows per edge fit into a quarter of the memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return form != "edge_index" or edges * width * 4 < memory / 4


class PygModel(nn.Module):
    """SAGE or GCN as a PyG user writes it; the normalisation of GCN is computed once and kept, as PyG advises."""

    def __init__(self, model: str, widths: list[int], dropout: float):
        from torch_geometric.nn import GCNConv, SAGEConv

        super().__init__()
        pairs = list(pairwise(widths))
        make = (lambda a, b: SAGEConv(a, b)) if model == "sage" else (lambda a, b: GCNConv(a, b, cached=True))
        self.convs, self.dropout = nn.ModuleList(make(a, b) for a, b in pairs), dropout

    def forward(self, x: Tensor, graph) -> Tensor:
        for conv in self.convs[:-1]:
            x = functional.dropout(conv(x, graph).relu(), self.dropout, self.training)
        return self.convs[-1](x, graph)


def pyg_step(model: PygModel, optimizer, x: Tensor, graph, y: Tensor, mask: Tensor) -> float:
    model.train()
    optimizer.zero_grad(set_to_none=True)
    loss = functional.cross_entropy(model(x, graph)[mask], y[mask])
    loss.backward()
    optimizer.step()
    return loss.item()
