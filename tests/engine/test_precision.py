"""Training with rows and products in bf16: close to float32, and only where it is asked for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from exactly import assert_equal_runs, config, run
from graphs import community_graph, cut, sparse_rows
from products import each_value
from torch import nn

from isthmus.kernels import linear
from isthmus.nn import GATConv, GCNConv, ModelConfig, SAGEConv
from isthmus.recipes import find


def policy(precision: str, recipe: str = "exact"):
    return find(recipe).policy({"precision": precision})


def far(one, other) -> float:
    """The largest relative distance between two runs' losses."""
    return float(((one[0] - other[0]).abs() / one[0]).max())


@pytest.mark.parametrize(
    *each_value(
        recipe=["exact", "vanilla", "pipegcn", "psc-gcn", "isthmus"], model=["gcn", "sage", "gat"], sparse=[False, True]
    )
)
def test_bf16_trains_like_fp32(tmp_path, recipe, model, sparse):
    graph = community_graph()
    if sparse:
        graph = replace(graph, x=sparse_rows(np.where(graph.x > 0.5, graph.x, 0)))
    book, asked = cut(graph, 3, "metis", tmp_path), config(model, 0.3, dtype="float32")
    full, halved = (run(book, asked, policy(precision, recipe)) for precision in ("fp32", "bf16"))
    assert 1e-5 < far(full, halved) < 0.05
    assert halved[0][-1] < halved[0][0]


@pytest.mark.parametrize(*each_value(recipe=["pipegcn", "psc-gcn", "isthmus"], model=["gcn", "sage"]))
def test_workers_with_many_and_with_few_training_nodes_send_the_same(tmp_path, recipe, model):
    """They compute in different orders, some in bf16, but what crosses is of one kind, probes too."""
    graph = community_graph(240)
    train_mask = np.arange(240)[:, None] % 80 < np.array([72, 8, 8]).repeat(80)[:, None]
    book = cut(replace(graph, train_mask=train_mask), 3, "blocks", tmp_path)
    asked = config(model, 0.3, dtype="float32", probe_every=4)
    full, halved = (run(book, asked, policy(precision, recipe)) for precision in ("fp32", "bf16"))
    assert 1e-5 < far(full, halved) < 0.05


class Headed(nn.Module):
    """A model of one's own: the library's convolutions, and modules of torch that know nothing of bf16."""

    def __init__(self, in_width: int, out_width: int):
        super().__init__()
        self.convs = nn.ModuleList([GCNConv(in_width, 8), SAGEConv(8, 8), GATConv(8, 8)])
        self.weight = nn.Parameter(torch.ones(8, 8) / 8)
        self.head = nn.Linear(8, out_width)

    def forward(self, graph, x):
        for conv in self.convs:
            x = graph.dropout(conv(graph, x), 0.2 if self.training else 0.0, relu=True)
        return self.head(graph.linear(x, self.weight))


@pytest.mark.parametrize("recipe", ["exact", "isthmus"])
def test_modules_of_torch_after_ours(tmp_path, recipe):
    book, own = cut(community_graph(), 2, "metis", tmp_path), ModelConfig(f"{__name__}:Headed")
    asked = replace(config(dtype="float32"), model=own)
    full, halved = (run(book, asked, policy(precision, recipe)) for precision in ("fp32", "bf16"))
    assert 1e-6 < far(full, halved) < 0.05


@pytest.mark.parametrize("recipe", ["exact", "isthmus"])
def test_layer_norm_in_bf16(tmp_path, recipe):
    book, asked = cut(community_graph(), 2, "metis", tmp_path), config("sage", 0.3, dtype="float32")
    asked = replace(asked, model=replace(asked.model, layer_norm=True))
    full, halved = (run(book, asked, policy(precision, recipe)) for precision in ("fp32", "bf16"))
    assert 1e-6 < far(full, halved) < 0.05


@pytest.mark.parametrize(
    *each_value(recipe=["exact", "pipegcn", "psc-gcn", "isthmus"], model=["gcn", "sage"], precision=["fp32", "bf16"])
)
def test_rows_that_are_read_in_bf16(tmp_path, recipe, model, precision):
    book, asked = cut(community_graph(), 3, "metis", tmp_path), config(model, 0.3, dtype="float32")
    full = run(book, asked, policy("fp32", recipe))
    halved = run(book, replace(asked, rows_dtype="bf16"), policy(precision, recipe))
    assert 1e-6 < far(full, halved) < 0.05


def test_workers_agree_in_bf16(tmp_path):
    """The same rounding at the same places: what differs is the order of sums, here and there by one bit of bf16."""
    graph, asked = community_graph(), config("sage", 0.3, dtype="float32")
    alone = run(cut(graph, 1, "random", tmp_path), asked, policy("bf16"))
    assert far(alone, run(cut(graph, 3, "random", tmp_path), asked, policy("bf16"))) < 0.01


def test_float64_stays_what_it_is(tmp_path):
    book, asked = cut(community_graph(), 2, "metis", tmp_path), config("sage", 0.3)
    assert_equal_runs(run(book, asked, policy("fp32")), run(book, asked, policy("bf16")), tolerance=0)


@pytest.mark.parametrize("fast", [False, True])
def test_auto_goes_by_the_processor(tmp_path, monkeypatch, fast):
    monkeypatch.setattr(linear, "bf16_is_fast", lambda: fast)
    book, asked = cut(community_graph(), 2, "metis", tmp_path), config("sage", 0.3, dtype="float32")
    one, other = run(book, asked, policy("auto")), run(book, asked, policy("bf16" if fast else "fp32"))
    assert torch.equal(one[1], other[1])
