"""GCN, SAGE and GAT of any depth and width: convolutions with norm, activation and dropout between them."""

from __future__ import annotations

import inspect
import threading
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from isthmus.errors import InputError
from isthmus.local import LocalGraph, scatter_rows
from isthmus.nn.layers import GATConv, GCNConv, Rows, SAGEConv
from isthmus.nn.own import build_own
from isthmus.options import check_options, option

_ALL = "train compare plan"
_VERIFIED = _ALL + " verify"
_DRAWING = threading.Lock()  # torch has one generator per process, and workers may be threads


@dataclass(frozen=True)
class ModelConfig:
    """The options of a model; one of one's own (`nn.own`) gets those that it has parameters for."""

    model: str = option(
        "gcn",
        "{choices}, or your own as package.module:Net.",
        "Model",
        _VERIFIED,
        choices=lambda: MODELS,
        outside=True,
        accepts="str | type[nn.Module] | Callable[..., nn.Module]",
    )
    layers: int = option(2, "Convolutions.", "Model", _VERIFIED, least=1)
    hidden: int = option(64, "Width between them.", "Model", _VERIFIED, least=1)
    heads: int = option(4, "Attention heads (gat).", "Model", _ALL, least=1)
    """Each hidden layer of a GAT is ``heads`` × ``hidden // heads`` wide."""
    dropout: float = option(0.5, "Between convolutions.", "Model", _VERIFIED, least=0, below=1)
    input_dropout: float = option(
        0.0, "On the features; 0 lets layer 0 aggregate once.", "Model", _ALL, least=0, below=1
    )
    layer_norm: bool = option(False, "Normalise rows between convolutions.", "Model", _ALL)

    def __post_init__(self) -> None:
        check_options(self)
        if self.model == "gat" and self.hidden % self.heads:
            raise InputError(f"hidden ({self.hidden}) must be a multiple of heads ({self.heads}) for gat")

    def made_by(self, kind: type[nn.Module]) -> ModelConfig:
        """Return the config of a model that was made by ``kind(features, classes)``, of which nothing else is known."""
        takes = inspect.signature(kind).parameters
        defaults = {f.name: takes[f.name].default for f in fields(self) if f.name in takes and f.name != "model"}
        known: dict[str, Any] = {name: one for name, one in defaults.items() if isinstance(one, int | float)}
        named = replace(self, model=f"{kind.__module__}:{kind.__qualname__}")
        with suppress(InputError):  # a default that means something else there
            return replace(named, **known)
        return named

    def build(self, in_width: int, out_width: int, seed: int, dtype: torch.dtype = torch.float32) -> nn.Module:
        """Return the model with weights drawn from `seed`: the same on every worker, without a message."""
        with _DRAWING, torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            if self.model in MODELS:
                return MODELS[self.model](self, in_width, out_width).to(dtype)
            shape = {f.name: (getattr(self, f.name), f.default) for f in fields(self) if f.name != "model"}
            return build_own(self.model, in_width, out_width, shape).to(dtype)


class Model(nn.Module):
    """A stack of convolutions; between two of them: layer norm if asked, activation, dropout.

    Dropout follows the exchange: its mask depends on the node, so owner and readers of a row have the same mask.
    """

    thins: ClassVar[bool] = True
    """Whether the last layer may read a sample of its inner edges, if the recipe draws one: sums may, attention not."""
    rectifies: ClassVar[bool] = True
    """Whether relu is the activation."""

    def __init__(self, config: ModelConfig, convs: list[nn.Module], widths: list[int]):
        super().__init__()
        self.config = config
        self.convs = nn.ModuleList(convs)
        norms = [nn.LayerNorm(width) if config.layer_norm else nn.Identity() for width in widths]
        self.norms = nn.ModuleList(norms)

    def forward(self, graph: LocalGraph, x: Rows) -> Tensor:
        """Return logits [n, out] of this worker's inner rows x [n, in]; zeros in rows outside `LocalGraph.read`."""
        x = self.drop_input(graph, x)
        *early, last = range(len(self.convs))
        for k in early:
            only = graph.sources(self.thins) if k == last - 1 else None
            if self.rectifies and not self.dropout and not self.config.layer_norm:  # relu follows at once
                x = scatter_rows(self.convs[k](graph, x, only, as_made="relu"), only, graph.num_rows)
                continue
            x = scatter_rows(self.norms[k](self.convs[k](graph, x, only, as_made=True)), only, graph.num_rows)
            x = self.activate(graph, x)
        return scatter_rows(self.convs[-1](graph, x, graph.read), graph.read, graph.num_rows)

    def drop_input(self, graph: LocalGraph, x: Rows) -> Rows:
        p = self.config.input_dropout if self.training else 0.0
        if p == 0:
            return x
        return graph.dropout(x, p)

    def activate(self, graph: LocalGraph, x: Tensor) -> Tensor:
        return graph.dropout(x, self.dropout, relu=True)

    @property
    def dropout(self) -> float:
        """The share of features that is dropped between convolutions now."""
        return self.config.dropout if self.training else 0.0


def _widths(config: ModelConfig, in_width: int, out_width: int) -> list[tuple[int, int]]:
    ends = [in_width, *[config.hidden] * (config.layers - 1), out_width]
    return list(pairwise(ends))


class GCN(Model):
    def __init__(self, config: ModelConfig, in_width: int, out_width: int):
        widths = _widths(config, in_width, out_width)
        super().__init__(config, [GCNConv(a, b) for a, b in widths], [b for _, b in widths[:-1]])


class SAGE(Model):
    def __init__(self, config: ModelConfig, in_width: int, out_width: int):
        widths = _widths(config, in_width, out_width)
        super().__init__(config, [SAGEConv(a, b) for a, b in widths], [b for _, b in widths[:-1]])


class GAT(Model):
    """A GAT whose hidden layers concatenate their heads and whose last layer averages them; ELU between."""

    thins = rectifies = False

    def __init__(self, config: ModelConfig, in_width: int, out_width: int):
        *hidden, last = _widths(config, in_width, out_width)
        convs: list[nn.Module] = [GATConv(a, b // config.heads, config.heads) for a, b in hidden]
        convs.append(GATConv(*last, config.heads, concat=False))
        super().__init__(config, convs, [b for _, b in hidden])

    def activate(self, graph: LocalGraph, x: Tensor) -> Tensor:
        return graph.dropout(functional.elu(x), self.dropout)


MODELS: dict[str, type] = {"gcn": GCN, "sage": SAGE, "gat": GAT}
