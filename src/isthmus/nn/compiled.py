"""Models that `torch.compile` has been at: the compiler cannot see through the exchange of rows."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from torch import nn

from isthmus.errors import InputError

TAKES_A_GRAPH = ("graph", "edge_index")  # by these names modules are given it


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
                "take tensors alone, as in model.mlp = torch.compile(model.mlp), or leave it out"
            )


def _compiled(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """By `torch.compile(module)`, `module.compile()` or `module.forward = torch.compile(module.forward)`."""
    for name, module in model.named_modules():
        in_place = getattr(module, "_compiled_call_impl", None) is not None
        if "_orig_mod" in module._modules or in_place or hasattr(module.forward, "_torchdynamo_orig_callable"):
            yield name, module
