"""The convolutions, written once against LocalGraph.

In bf16 training their results are in the weights' dtype, or in bf16 with ``as_made``, for callers that accept it;
``as_made="relu"`` is relu of that, which sums compute in the same pass.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from isthmus.kernels import HostRows, SparseMatrix
from isthmus.local import AsMade, LocalGraph, gather_rows

Rows = Tensor | SparseMatrix | HostRows


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

    def forward(self, graph: LocalGraph, x: Rows, only: Tensor | None = None, *, as_made: AsMade = False) -> Tensor:
        return graph.propagate(x, self.weight, "gcn", only, bias=self.bias, as_made=as_made)


class SAGEConv(nn.Module):
    r"""GraphSAGE with the mean, in its concatenated form.

    .. math:: x'_i = W \Bigl[\, x_i \,\Big\|\, \frac{1}{d_i} \sum_{j \in N(i)} x_j \Bigr] + b
                   = W_{self}\, x_i + W_{mean} \frac{1}{d_i} \sum_{j \in N(i)} x_j + b

    Shapes: x [n, in] → [n, out]; W [out, 2 in].
    """

    def __init__(self, in_width: int, out_width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_width, 2 * in_width))
        self.bias = nn.Parameter(torch.zeros(out_width))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, graph: LocalGraph, x: Rows, only: Tensor | None = None, *, as_made: AsMade = False) -> Tensor:
        root, mean = self.weight.chunk(2, dim=1)
        return graph.propagate(x, mean, "mean", only, root=root, bias=self.bias, as_made=as_made)


class GATConv(nn.Module):
    r"""Graph attention of Veličković et al., H heads of D features.

    .. math:: x'_i = \Bigl\|_{h} \sum_{j \in N(i) \cup i} α^h_{ij} W^h x_j + b, \qquad
              α^h_{ij} = softmax_j\, leaky\bigl(a^h_t \cdot W^h x_i + a^h_s \cdot W^h x_j\bigr)

    With ``concat=False`` the heads are averaged. Attention is never computed in bf16. Shapes: x [n, in] → [n, H·D] or
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

    def forward(self, graph: LocalGraph, x: Rows, only: Tensor | None = None, *, as_made: AsMade = False) -> Tensor:
        rows = graph.halo(x, self.weight)
        by_head = rows.unflatten(1, (self.heads, -1))
        target = (by_head[: graph.num_rows] * self.target).sum(-1)
        source = (by_head * self.source).sum(-1)
        out = graph.attend(target, source, rows, self.slope)
        if not self.concat:
            out = out.unflatten(1, (self.heads, -1)).mean(1)
        return gather_rows(out, only) + self.bias
