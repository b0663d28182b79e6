"""The convolutions, written once against LocalGraph.

Where a model trains in bf16, their results are in the weights' dtype; with ``as_made`` in bf16, for what takes that.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from isthmus.kernels import SparseMatrix
from isthmus.local import LocalGraph, gather_rows

Rows = Tensor | SparseMatrix


def narrows(graph: LocalGraph, x: Tensor, out_width: int) -> bool:
    """Whether a layer's transform comes before its aggregation: P (X Wᵀ) instead of (P X) Wᵀ.

    Input rows that never change are aggregated once per run, so for them P X comes first. Elsewhere the narrow side is
    exchanged, and at equal width the transform comes first, because then P X need not be kept for the gradient. Rows
    that readers drop out themselves are exchanged as they are (`LocalGraph.may_narrow`).
    """
    return graph.savings.narrow_side and out_width <= x.shape[1] and graph.may_narrow(x, out_width)


def propagate(graph: LocalGraph, x: Rows, weight: Tensor, norm: str, only: Tensor | None = None) -> Tensor:
    """P X Wᵀ in the cheaper of its two orders, [n, out]; or the rows ``only`` of it. As made: see above.

    For sparse rows that is the transform first (P X is several times fuller than X), those of the halo included.
    """
    if isinstance(x, SparseMatrix):
        return graph.aggregate_sparse(x, weight, norm, only)
    if narrows(graph, x, len(weight)):
        return graph.aggregate_narrow(x, weight, norm, only)
    return graph.linear(graph.aggregate(x, norm, through=weight, only=only), weight, as_made=True)


class GCNConv(nn.Module):
    r"""Graph convolution of Kipf and Welling.

    .. math:: x'_i = W \sum_{j \in N(i) \cup i} \frac{x_j}{\sqrt{(d_i + 1)(d_j + 1)}} + b

    Shapes: x [n, in] → [n, out]; W [out, in].
    """

    def __init__(self, in_width: int, out_width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_width, in_width))
        self.bias = nn.Parameter(torch.zeros(out_width))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, graph: LocalGraph, x: Rows, only: Tensor | None = None, *, as_made: bool = False) -> Tensor:
        out = propagate(graph, x, self.weight, "gcn", only)
        return out + self.bias.to(out.dtype) if as_made else out + self.bias


class SAGEConv(nn.Module):
    r"""GraphSAGE with the mean, in its concatenated form.

    .. math:: x'_i = W \Bigl[\, x_i \,\Big\|\, \frac{1}{d_i} \sum_{j \in N(i)} x_j \Bigr] + b
                   = W_{self}\, x_i + W_{mean} \frac{1}{d_i} \sum_{j \in N(i)} x_j + b

    Where the transform comes before the aggregation the second form is computed: the halves take different orders.
    Shapes: x [n, in] → [n, out]; W [out, 2 in].
    """

    def __init__(self, in_width: int, out_width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_width, 2 * in_width))
        self.bias = nn.Parameter(torch.zeros(out_width))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, graph: LocalGraph, x: Rows, only: Tensor | None = None, *, as_made: bool = False) -> Tensor:
        w_self, w_mean = self.weight.chunk(2, dim=1)
        linear = partial(graph.linear, bias=self.bias, as_made=as_made)
        if isinstance(x, SparseMatrix):
            return propagate(graph, x, w_mean, "mean", only) + gather_rows(linear(x, w_self), only)
        if narrows(graph, x, len(self.weight)):
            return propagate(graph, x, w_mean, "mean", only) + linear(gather_rows(x, only), w_self)
        neighbours = graph.aggregate(x, "mean", through=w_mean, only=only)
        return linear((gather_rows(x, only), neighbours), self.weight)


class GATConv(nn.Module):
    r"""Graph attention of Veličković et al., H heads of D features.

    .. math:: x'_i = \Bigl\|_{h} \sum_{j \in N(i) \cup i} α^h_{ij} W^h x_j + b, \qquad
              α^h_{ij} = softmax_j\, leaky\bigl(a^h_t \cdot W^h x_i + a^h_s \cdot W^h x_j\bigr)

    With ``concat=False`` the heads are averaged. Attention is never made in bf16. Shapes: x [n, in] → [n, H·D] or
    [n, D].
    """

    def __init__(self, in_width: int, out_width: int, heads: int = 1, concat: bool = True, slope: float = 0.2):
        super().__init__()
        self.heads, self.concat, self.slope = heads, concat, slope
        self.weight = nn.Parameter(torch.empty(heads * out_width, in_width))
        self.target = nn.Parameter(torch.empty(1, heads, out_width))
        self.source = nn.Parameter(torch.empty(1, heads, out_width))
        self.bias = nn.Parameter(torch.zeros(heads * out_width if concat else out_width))
        for parameter in (self.weight, self.target, self.source):
            nn.init.xavier_uniform_(parameter)

    def forward(self, graph: LocalGraph, x: Rows, only: Tensor | None = None, *, as_made: bool = False) -> Tensor:
        if isinstance(x, SparseMatrix):
            rows = graph.halo_sparse(x, self.weight)
        elif graph.wants_as_is(x):
            rows = graph.linear(graph.halo(x), self.weight)
        else:
            rows = graph.halo(graph.linear(x, self.weight))
        by_head = rows.unflatten(1, (self.heads, -1))
        target = (by_head[: graph.num_inner] * self.target).sum(-1)
        source = (by_head * self.source).sum(-1)
        out = graph.attend(target, source, rows, self.slope)
        if not self.concat:
            out = out.unflatten(1, (self.heads, -1)).mean(1)
        return gather_rows(out, only) + self.bias
