"""Models and `torch.compile`: what a model does between two exchanges is compiled, the exchange is called as it is."""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch import nn

from isthmus.errors import InputError
from isthmus.nn.calling import Calling
from isthmus.nn.node_dropout import NodeDropout

TAKES_A_GRAPH = ("graph", "edge_index")  # by these names modules are given it
_CALLED_AS_IT_IS = ("kernels", "comm", "local", "shard", "sample", "features", "minibatch")
_ALSO = ("nn.calling", "nn.scope", "nn.pyg")


def compile_model(model: nn.Module, backend: str, device: torch.device) -> nn.Module:
    """Compile a distributed model around the exchange; return it. Its weights and their names stay as they are."""
    calling = model.forward
    if not isinstance(calling, Calling):
        raise InputError(f"--compile is for whole models, not for a single {type(model).__name__}: leave it out")
    _try_out(backend, device)
    calling.forward = torch.compile(calling.forward, backend=backend)
    calling.dropout = _opaque_dropout()
    return model


def seconds_spent() -> float:
    """Return the seconds that this process has spent in the compiler."""
    from torch._dynamo.utils import compilation_time_metrics as times

    return sum(times.get("_compile.compile_inner", []))


@cache
def _try_out(backend: str, device: torch.device) -> None:
    """Compile a sum, so that a compiler that is missing is noticed before any work; then keep the compiler out of ours.

    A skipped file is a break of the compiled graph: its functions are called as they are.
    """
    from torch._dynamo import list_backends, trace_rules

    known = list_backends(exclude_tags=())
    if backend not in known:
        raise InputError(f"torch has no compiler {backend!r}: use one of {', '.join(sorted(known))}")
    begun = time.monotonic()
    try:
        torch.compile(lambda x: x + x, backend=backend)(torch.ones(2, device=device))
    except Exception as error:
        said = str(error).strip().partition("\n")[0]
        raise InputError(
            f"--compile {backend} does not work here after {time.monotonic() - begun:.0f} s ({said}): install a C++ "
            "compiler (CPU) or triton (CUDA), or leave it out"
        ) from None
    for room in (*_CALLED_AS_IT_IS, *_ALSO):
        trace_rules.add(f"isthmus.{room}")


@cache
def _opaque_dropout() -> Any:
    """Return a `NodeDropout` that the compiler may look through, but for what it does in place of torch's dropout."""
    from torch._dynamo.eval_frame import skip_code

    # Compiled by itself, it would be taken for one function whatever function it is called for.
    skip_code(NodeDropout.__torch_function__.__code__)
    return type("NodeDropout", (NodeDropout,), {"_drop": torch.compiler.disable(NodeDropout._drop)})


def check_not_compiled(model: nn.Module) -> None:
    """Refuse a model that is compiled where it takes the graph; modules that take only tensors may well be."""
    for name, module in _compiled(model):
        original = getattr(module, "_orig_mod", module)
        forward = getattr(original.forward, "_torchdynamo_orig_callable", original.forward)
        whole = original is getattr(model, "_orig_mod", model)
        if whole or set(inspect.signature(forward).parameters) & set(TAKES_A_GRAPH):
            what = f"{name} ({type(original).__name__})" if name else type(original).__name__
            raise InputError(
                f"torch.compile cannot see through the exchange of rows in {what}: compile only modules inside it that "
                "take tensors alone, as in model.mlp = torch.compile(model.mlp), or leave it out and give --compile"
            )


def _compiled(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """By `torch.compile(module)`, `module.compile()` or `module.forward = torch.compile(module.forward)`."""
    for name, module in model.named_modules():
        in_place = getattr(module, "_compiled_call_impl", None) is not None
        if "_orig_mod" in module._modules or in_place or hasattr(module.forward, "_torchdynamo_orig_callable"):
            yield name, module
