"""Weights of the models that are here, under the names of PyG's own models."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from isthmus.errors import InputError


def _sage(place: str, weight: Tensor) -> dict[str, Tensor]:
    root, mean = weight.chunk(2, dim=1)
    return {f"{place}.lin_r.weight": root.contiguous(), f"{place}.lin_l.weight": mean.contiguous()}


_NAMES: dict[str, dict[str, Callable[[str, Tensor], dict[str, Tensor]]]] = {
    "gcn": {
        "weight": lambda place, one: {f"{place}.lin.weight": one},
        "bias": lambda place, one: {f"{place}.bias": one},
    },
    "sage": {"weight": _sage, "bias": lambda place, one: {f"{place}.lin_l.bias": one}},
    "gat": {
        "weight": lambda place, one: {f"{place}.lin.weight": one},
        "bias": lambda place, one: {f"{place}.bias": one},
        "target": lambda place, one: {f"{place}.att_dst": one},
        "source": lambda place, one: {f"{place}.att_src": one},
    },
}


def pyg_names(model: str, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return weights so that PyG's ``GCN``, ``GraphSAGE`` (gat: ``GAT``) of the same shape loads them.

    A model of the user's own has its own names, which are PyG's if it is one of PyG's.
    """
    if ":" in model:
        return dict(weights)
    found: dict[str, Tensor] = {}
    for name, one in weights.items():
        room, number, last = name.split(".")
        if room != "convs":
            raise InputError(f"{name} has no counterpart in PyG's models: train without --layer-norm for that")
        found |= _NAMES[model][last](f"convs.{number}", one)
    return found
