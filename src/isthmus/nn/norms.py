"""Norms over all nodes, such as BatchNorm: each normalises the rows of all workers as one process would.

`norms_of(model)` finds them, `share_norms` replaces their forward. Statistics cross in one message per norm and pass;
running statistics are the same bits on every worker. Without a `LocalGraph` a norm does what it did before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn.functional import batch_norm
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from isthmus import kernels
from isthmus.comm import BACKWARD
from isthmus.errors import InputError
from isthmus.local import LocalGraph
from isthmus.local.all_nodes import Groups, Moments, check_once, merged_moments, where
from isthmus.nn.scope import Scope, is_pygs


def norms_of(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the modules that normalise over all nodes, with their names; refuse those that cannot be shared."""
    inside: set[nn.Module] = set()  # a PyG BatchNorm holds one of torch, and calls it
    for name, module in model.named_modules():
        if module in inside or not _is_over_nodes(module):
            continue
        if _form(module) is None:
            raise InputError(
                f"{name or 'the model'} ({type(module).__name__}) normalises over all nodes, of which a worker has "
                "only some: take BatchNorm, GraphNorm, PairNorm or LayerNorm, which are shared between workers"
            )
        inside |= set(module.children())
        yield name, module


def share_norms(model: nn.Module, scope: Scope) -> None:
    """Let the norms of a model see the rows of all workers whenever the scope has a graph."""
    for _, norm in norms_of(model):
        if not isinstance(norm.forward, partial):
            norm.forward = partial(_forward, norm, norm.forward, scope)


def _forward(norm: nn.Module, alone: Callable, scope: Scope, x: Tensor, *rest: Any, **options: Any) -> Tensor:
    if scope.graph is None:
        return alone(x, *rest, **options)
    form = _form(norm)
    assert form is not None, "norms without a form are refused"
    run = scope.graph.runtime
    check_once(run)
    if run.drawn.num_halo and len(x) == run.drawn.num_inner + run.drawn.num_halo != run.drawn.num_edges:
        raise InputError(
            f"{type(norm).__name__} is given the rows of halo nodes, which would count several times: normalise this "
            "worker's own rows, before graph.halo"
        )
    with torch._C.DisableTorchFunction():  # straight, not by way of `NodeDropout`: norms take many small steps
        return form(scope.graph, norm, x, *rest, **options)


def _is_over_nodes(module: nn.Module) -> bool:
    if isinstance(module, _BatchNorm):
        return True
    if isinstance(module, _InstanceNorm):
        return module.track_running_stats  # without them it normalises every row by itself
    by_row = type(module).__name__ in ("MessageNorm", "DiffGroupNorm") or getattr(module, "mode", "") == "node"
    return is_pygs(module, "norm") and not by_row


def _form(norm: nn.Module) -> Callable | None:
    """Return how to compute a norm over all workers' rows; None if its class does not say what it computes."""
    if isinstance(norm, _BatchNorm) and type(norm).forward in (_BatchNorm.forward, nn.SyncBatchNorm.forward):
        return _batch_norm
    base: Any = next((cls for cls in type(norm).__mro__ if cls.__module__.startswith("torch_geometric.nn.norm")), None)
    if base is None or type(norm).forward is not base.forward:
        return None
    return _PYGS.get(base.__name__)


def _batch_norm(graph: LocalGraph, norm: Any, x: Tensor) -> Tensor:
    if x.dim() == 3:  # [n, F, L]: a channel's values of all rows and places
        flat = x.transpose(1, 2).reshape(-1, x.shape[1])
        return _batch_norm(graph, norm, flat).view(len(x), x.shape[2], -1).transpose(1, 2)
    if not (norm.training or norm.running_mean is None):
        return batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias, False, 0.0, norm.eps)
    run = graph.runtime
    site = run.next_sum()
    moments = merged_moments(run, x.detach(), Groups(None, 1), site)
    if moments.number < 2:
        raise InputError(f"{type(norm).__name__} needs more than one row, and all workers together have one")
    if norm.training and norm.track_running_stats:
        norm.num_batches_tracked.add_(1)
        share = 1.0 / float(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
        _track(norm, share, moments)
    out, tie = _BatchNormed.apply(run, site, moments, norm.eps, x, norm.weight, norm.bias)
    if tie.requires_grad:
        run.ties.append(tie)
    return out


class _BatchNormed(Function):
    """Rows of mean 0 and variance 1 over all workers, times weight plus bias.

    With x̂ = (x - mean) / s and a = weight / s, the gradient is a (g - [Σ g + x̂ Σ g x̂] / N), sums over all workers.
    """

    @staticmethod
    def forward(ctx: Any, run: Any, site: int, moments: Moments, eps: float, x: Tensor, weight: Any, bias: Any):
        number, mean, variance = (one[0].to(x.dtype) for one in moments)
        ctx.run, ctx.site, ctx.eps = run, site, eps
        ctx.save_for_backward(x, weight, number, mean, variance)
        return batch_norm(x, mean, variance, weight, bias, False, 0.0, eps), x.new_zeros(())

    @staticmethod
    def backward(ctx: Any, grad: Tensor, tie: Tensor):
        x, weight, number, mean, variance = ctx.saved_tensors
        grad, scale = grad.contiguous(), (variance + ctx.eps).rsqrt()
        mine = kernels.norm_grad_sums(x, grad, mean).to(x.dtype) * torch.stack([torch.ones_like(scale), scale])
        total = ctx.run.transport.stack(mine, where(ctx.run, ctx.site, BACKWARD)).sum(0) / number
        slope = scale if weight is None else weight * scale
        of_x = kernels.norm_grad(x, grad, torch.stack([mean, slope, -slope * scale * total[1], -slope * total[0]]))
        of_bias, of_weight = mine if weight is not None else (None, None)
        return None, None, None, None, of_x, of_weight, of_bias


def _track(norm: Any, share: float, moments: Moments) -> None:
    """Move the running statistics towards the moments; several groups count by their mean."""
    number, mean, variance = moments
    unbiased = variance * (number / (number - 1).clamp_min(1))
    for running, now in ((norm.running_mean, mean), (norm.running_var, unbiased)):
        running.lerp_((now[0] if len(now) == 1 else now.mean(0)).detach().to(running.dtype), share)


def _pyg_batch_norm(graph: LocalGraph, norm: Any, x: Tensor) -> Tensor:
    inner = norm.module
    single = norm.allow_single_element and graph.moments(x.detach()[:, :1]).number <= 1
    if single:
        return batch_norm(x, inner.running_mean, inner.running_var, inner.weight, inner.bias, False, 0.0, inner.eps)
    return _batch_norm(graph, inner, x)


def _graph_norm(graph: LocalGraph, norm: Any, x: Tensor, batch: Tensor | None = None, batch_size: int | None = None):
    _, mean, variance = graph.moments(x, batch, batch_size)
    centre = mean * norm.mean_scale
    deviation = (variance + (mean - centre).square() + norm.eps).sqrt()
    return norm.weight * (x - _spread(centre, batch)) / _spread(deviation, batch) + norm.bias


def _pair_norm(graph: LocalGraph, norm: Any, x: Tensor, batch: Tensor | None = None, batch_size: int | None = None):
    _, mean, variance = graph.moments(x, batch, batch_size)
    x = x - _spread(mean, batch)
    if norm.scale_individually:
        return norm.scale * x / (norm.eps + x.norm(2, -1, keepdim=True))
    return norm.scale * x / _spread((norm.eps + variance.sum(-1, keepdim=True)).sqrt(), batch)


def _layer_norm(graph: LocalGraph, norm: Any, x: Tensor, batch: Tensor | None = None, batch_size: int | None = None):
    """Compute PyG's LayerNorm in its mode "graph": one mean and one variance for all values of a graph."""
    _, means, variances = graph.moments(x, batch, batch_size)
    mean = means.mean(1, keepdim=True)
    variance = (variances + (means - mean).square()).mean(1, keepdim=True)
    deviation = variance.sqrt() + norm.eps if batch is None else (variance + norm.eps).sqrt()
    out = (x - _spread(mean, batch)) / _spread(deviation, batch)
    return out if norm.weight is None else out * norm.weight + norm.bias


def _instance_norm(graph: LocalGraph, norm: Any, x: Tensor, batch: Tensor | None = None, batch_size: int | None = None):
    if norm.training or not norm.track_running_stats:
        moments = graph.moments(x, batch, batch_size)
        _, mean, variance = moments
        if norm.running_mean is not None:
            _track(norm, norm.momentum, moments)
        mean, variance = _spread(mean, batch), _spread(variance, batch)
    else:
        mean, variance = norm.running_mean, norm.running_var
    out = (x - mean) / (variance + norm.eps).sqrt()
    return out if norm.weight is None else out * norm.weight + norm.bias


def _size_norm(graph: LocalGraph, _: Any, x: Tensor, batch: Tensor | None = None, batch_size: int | None = None):
    return x * _spread(graph.moments(x.detach()[:, :1], batch, batch_size).number.rsqrt(), batch)


def _centred(graph: LocalGraph, _: Any, x: Tensor, batch: Tensor | None = None, dim_size: int | None = None) -> Tensor:
    return x - _spread(graph.mean(x, batch, dim_size), batch)


def _spread(values: Tensor, batch: Tensor | None) -> Tensor:
    """Return the values of every row's group."""
    return values if batch is None else values[batch]


_PYGS: dict[str, Callable] = {
    "BatchNorm": _pyg_batch_norm,
    "GraphNorm": _graph_norm,
    "GraphSizeNorm": _size_norm,
    "InstanceNorm": _instance_norm,
    "LayerNorm": _layer_norm,
    "MeanSubtractionNorm": _centred,
    "PairNorm": _pair_norm,
}
