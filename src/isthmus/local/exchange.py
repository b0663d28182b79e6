"""The exchange of an edge-cut as autograd Functions: rows come in before a layer, their gradients go back after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.autograd import Function

from isthmus import kernels
from isthmus.comm import Pending
from isthmus.local.norm import Norm

if TYPE_CHECKING:
    from isthmus.local.graph import LocalGraph


def aggregate(graph: LocalGraph, x: Tensor, norm: Norm, site: int) -> Tensor:
    return _Aggregate.apply(x, graph, norm, site)


def halo(graph: LocalGraph, x: Tensor, site: int) -> Tensor:
    return _Halo.apply(x, graph, site)


def attend(graph: LocalGraph, target: Tensor, source: Tensor, x: Tensor, slope: float) -> Tensor:
    return _Attend.apply(target, source, x, graph, slope)


def dropout(x: Tensor, nodes: Tensor, stream: int, p: float, relu: bool) -> Tensor:
    if p == 0:
        return torch.relu(x) if relu else x
    return (_ReluDropout if relu else _Dropout).apply(x, nodes, stream, p)


class _Aggregate(Function):
    """Z = target · (A_inner (source · X) + A_halo (halo · X_halo)); the gradient takes the same way back."""

    @staticmethod
    def forward(ctx, x, graph, norm, site):
        ctx.graph, ctx.norm, ctx.site, ctx.dtype = graph, norm, site, x.dtype
        rows = _as_rows(graph, x)
        arriving, pending = _fetch_halo(graph, rows, site, "embeddings" if x.requires_grad else "features")
        if not graph.savings.overlap:
            pending.wait()
        out = kernels.aggregate(graph.inner, rows, col_scale=norm.source, row_scale=norm.target, add_self=norm.add_self)
        if graph.savings.overlap:
            pending.wait()
        kernels.aggregate(graph.halo_in, arriving, out, col_scale=norm.halo, row_scale=norm.target, accumulate=True)
        return out

    @staticmethod
    def backward(ctx, grad):
        graph, norm = ctx.graph, ctx.norm
        rows = _as_rows(graph, grad)
        leaving = graph.buffer("gradient of halo", ctx.site, (graph.num_halo, grad.shape[1]), ctx.dtype)
        kernels.aggregate(graph.halo_out, rows, leaving, col_scale=norm.target, row_scale=norm.halo)
        arriving, pending = _return_gradients(graph, leaving, ctx.site)
        if not graph.savings.overlap:
            pending.wait()
        out = kernels.aggregate(
            graph.inner_out, rows, col_scale=norm.target, row_scale=norm.source, add_self=norm.add_self
        )
        if graph.savings.overlap:
            pending.wait()
        return _add_gradients(graph, out, arriving), None, None, None


class _Halo(Function):
    """[X; X_halo]. Its gradient's halo rows go back to their owners and are added there."""

    @staticmethod
    def forward(ctx, x, graph, site):
        ctx.graph, ctx.site = graph, site
        out = x.new_empty(graph.num_inner + graph.num_halo, x.shape[1])
        arriving = graph.halo_slices(out[graph.num_inner :])
        pending = _send_boundary(graph, x, arriving, site, "embeddings" if x.requires_grad else "features")
        out[: graph.num_inner] = x
        pending.wait()
        return out

    @staticmethod
    def backward(ctx, grad):
        graph = ctx.graph
        grad = grad.contiguous()
        arriving, pending = _return_gradients(graph, grad[graph.num_inner :], ctx.site)
        out = grad[: graph.num_inner].clone()
        pending.wait()
        return _add_gradients(graph, out, arriving), None, None


class _Attend(Function):
    @staticmethod
    def forward(ctx, target, source, x, graph, slope):
        pattern, _ = graph.attention_pattern
        out, alpha = kernels.attention(pattern, target, source, slope, x)
        ctx.graph, ctx.slope = graph, slope
        ctx.save_for_backward(target, source, x, alpha)
        return out

    @staticmethod
    def backward(ctx, grad):
        target, source, x, alpha = ctx.saved_tensors
        pattern, turned = ctx.graph.attention_pattern
        return *kernels.attention_grad(pattern, turned, target, source, ctx.slope, x, alpha, grad), None, None


class _Dropout(Function):
    """The mask is drawn again for the gradient instead of being kept."""

    @staticmethod
    def forward(ctx, x, nodes, stream, p):
        ctx.nodes, ctx.stream, ctx.p = nodes, stream, p
        return kernels.dropout(x, nodes, stream, p)

    @staticmethod
    def backward(ctx, grad):
        return kernels.dropout(grad, ctx.nodes, ctx.stream, ctx.p), None, None, None


class _ReluDropout(Function):
    """What came out says what passed; the next layer keeps that tensor anyway, so nothing more is stored."""

    @staticmethod
    def forward(ctx, x, nodes, stream, p):
        ctx.scale = 1.0 / (1.0 - p)
        out = kernels.dropout(x, nodes, stream, p, relu=True)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, grad):
        (out,) = ctx.saved_tensors
        return kernels.kept_positive(out, grad, ctx.scale), None, None, None


def _as_rows(graph: LocalGraph, x: Tensor) -> Tensor:
    """Rows in the form in which they are read and sent: as they are, or in bf16."""
    return x if graph.rows_dtype is None else x.to(graph.rows_dtype)


def _fetch_halo(graph: LocalGraph, rows: Tensor, site: int, kind: str) -> tuple[Tensor, Pending]:
    arriving = graph.buffer("halo", site, (graph.num_halo, rows.shape[1]), rows.dtype)
    return arriving, _send_boundary(graph, rows, graph.halo_slices(arriving), site, kind)


def _send_boundary(graph: LocalGraph, rows: Tensor, arriving: list[Tensor], site: int, kind: str) -> Pending:
    leaving = []
    for q, boundary in enumerate(graph.send_rows):
        message = graph.buffer(f"boundary for {q}", site, (len(boundary), rows.shape[1]), rows.dtype)
        leaving.append(kernels.gather_rows(rows, boundary, message))
    return graph.transport.exchange(leaving, arriving, graph.where(site, "forward", kind))


def _return_gradients(graph: LocalGraph, leaving: Tensor, site: int) -> tuple[list[Tensor], Pending]:
    """Sends the gradients of halo rows to their owners; returns where those of my boundary rows will be."""
    leaving = _as_rows(graph, leaving)
    arriving = [
        graph.buffer(f"gradient from {q}", site, (len(boundary), leaving.shape[1]), leaving.dtype)
        for q, boundary in enumerate(graph.send_rows)
    ]
    where = graph.where(site, "backward", "gradients")
    return arriving, graph.transport.exchange(graph.halo_slices(leaving), arriving, where)


def _add_gradients(graph: LocalGraph, out: Tensor, arriving: list[Tensor]) -> Tensor:
    for boundary, gradient in zip(graph.send_rows, arriving, strict=True):
        if len(boundary):
            kernels.scatter_add_rows(out, boundary, gradient.to(out.dtype))
    return out
