"""Feature rows that stay in the host's memory: products with them fetch the rows that they read, block by block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function

from isthmus.device import fed, host_room, on_host, pinned
from isthmus.kernels import ops

BLOCK_BYTES = 64 << 20  # of rows that are on the device at a time; those of the next block are on their way


class Drop(NamedTuple):
    """The dropout of rows that is applied where they are read."""

    nodes: Tensor  # int64 [n], on the device
    stream: int
    p: float


@dataclass(frozen=True, eq=False)
class HostRows:
    """A matrix X [n, F] of the host, read on ``device``: row i is ``held[rows[i]]``. Products have no gradient by X."""

    held: Tensor  # [m, F]
    device: torch.device
    rows: Tensor | None = None  # int64 [n], on the host; None: all that are held
    drop: Drop | None = None

    @staticmethod
    def of(held: Tensor, device: torch.device) -> HostRows:
        """Keep rows of the host where the device can copy them by itself."""
        return HostRows(pinned(held, device), device)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), self.held.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        return self.held.dtype

    @property
    def requires_grad(self) -> bool:
        return False

    def dim(self) -> int:
        return 2

    def __len__(self) -> int:
        return len(self.held) if self.rows is None else len(self.rows)

    def take(self, rows: Tensor | None) -> HostRows:
        """Return some of the rows (int64), in this order; None: all of them."""
        if rows is None:
            return self
        drop = None if self.drop is None else self.drop._replace(nodes=self.drop.nodes[rows])
        at = on_host(rows)
        return replace(self, rows=at if self.rows is None else self.rows[at], drop=drop)

    def dropout(self, nodes: Tensor, stream: int, p: float) -> HostRows:
        """Drop each value with probability p, as a function of (stream, node, feature), when it is read."""
        return replace(self, drop=Drop(nodes, stream, p)) if p else self

    def to(self, device: torch.device) -> Tensor:
        """Return all rows as a tensor of that device."""
        assert self.drop is None, "only fixed rows are brought elsewhere as they are"
        return (self.held if self.rows is None else self.held[self.rows]).to(device)

    def dense(self) -> Tensor:
        return torch.cat([rows for _, (rows,) in in_blocks([self])])

    def columns(self, at: slice) -> Tensor:
        """Return some columns of all rows on the device."""
        assert self.drop is None, "only fixed rows are read by columns"
        chosen = self.held[:, at]
        return (chosen.contiguous() if self.rows is None else chosen[self.rows]).to(self.device)

    def at(self, rows: slice) -> Tensor:
        """Return some rows as they are held, in memory that the device can copy from by itself."""
        if self.rows is None:
            return self.held[rows]
        wanted = self.rows[rows]
        return ops.gather_rows(self.held, wanted, host_room((len(wanted), self.held.shape[1]), self.dtype, self.device))

    def dropped(self, rows: slice, block: Tensor) -> Tensor:
        return block if self.drop is None else ops.dropout(block, self.drop.nodes[rows], *self.drop[1:])


def in_blocks(matrices: Sequence[HostRows]) -> Iterator[tuple[slice, list[Tensor]]]:
    """Yield the rows of matrices that are equally long on their device, a block of rows at a time."""
    length, width = len(matrices[0]), sum(one.shape[1] for one in matrices)
    count = max(1, BLOCK_BYTES // max(1, width * matrices[0].dtype.itemsize))
    places = [slice(begin, min(begin + count, length)) for begin in range(0, max(length, 1), count)]
    coming = fed(([one.at(rows) for one in matrices] for rows in places), matrices[0].device)
    for rows, blocks in zip(places, coming, strict=True):
        yield rows, [one.dropped(rows, block) for one, block in zip(matrices, blocks, strict=True)]


def product(matrices: Sequence[HostRows], weight: Tensor, bias: Tensor | None, half: torch.dtype | None) -> Tensor:
    """Return [X_1 | X_2 | …] Wᵀ (+ b), [n, out]; with ``half``, computed in that dtype.

    Shapes: X_k [n, in_k], weight [out, Σ in_k], bias [out]. Both passes read every row once.
    """
    return _Product.apply(weight, bias, half, *matrices)


class _Product(Function):
    @staticmethod
    def forward(ctx, weight, bias, half, *matrices):
        ctx.matrices, ctx.half, ctx.dtype = matrices, half, weight.dtype
        dtype = half or weight.dtype
        weight, bias = weight.to(dtype), None if bias is None else bias.to(dtype)
        out = weight.new_empty(len(matrices[0]), len(weight))
        for rows, blocks in in_blocks(matrices):
            out[rows] = torch.nn.functional.linear(torch.cat(blocks, 1).to(dtype), weight, bias)
        return out

    @staticmethod
    def backward(ctx, grad):
        of_weight = None
        if ctx.needs_input_grad[0]:
            width = sum(one.shape[1] for one in ctx.matrices)
            of_weight = torch.zeros(grad.shape[1], width, dtype=ctx.dtype, device=grad.device)
            for rows, blocks in in_blocks(ctx.matrices):
                of_weight += grad[rows].t() @ torch.cat(blocks, 1).to(grad.dtype)
        of_bias = grad.sum(0) if ctx.needs_input_grad[1] else None
        return of_weight, of_bias, None, *(None for _ in ctx.matrices)
