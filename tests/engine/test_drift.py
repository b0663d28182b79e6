"""Weights that differ between workers are found to the last bit; between unlike machines rounding is no difference."""

from __future__ import annotations

import itertools

import pytest
import torch
from graphs import community_graph, cut
from torch import nn

from isthmus.comm import Hub
from isthmus.engine import TrainConfig, train
from isthmus.engine.drift import check_alike
from isthmus.errors import InputError
from isthmus.nn import ModelConfig


def looked_at(change, weights: float = 1.0) -> None:
    """Two workers compare a model; `change` has been at the second one's."""

    def work(transport):
        model = nn.Linear(20, 10)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(weights)
            if transport.rank:
                change(model)
        check_alike(model, transport, "mend it")

    Hub(2).run(work)


def one_bit(model):
    model.weight[3, 4] = torch.nextafter(model.weight[3, 4], torch.tensor(2.0))


def test_equal_weights():
    looked_at(lambda model: None)
    looked_at(lambda model: None, weights=0.0)
    looked_at(lambda model: model.weight.neg_(), weights=0.0)  # −0 is 0
    looked_at(lambda model: None, weights=float("nan"))


@pytest.mark.parametrize("unlike", ["threads", "cpu"])
def test_machines_that_round_differently(monkeypatch, unlike):
    told = itertools.count()
    monkeypatch.setattr("isthmus.engine.drift.arithmetic", lambda device: f"{unlike} {next(told)}")
    looked_at(one_bit)
    looked_at(lambda model: model.weight.mul_(1 + 1e-6))
    with pytest.raises(InputError, match=r"worker 1 .*\(weight by 0\.0001 of its largest\)"):
        looked_at(lambda model: model.weight[0, 0].mul_(1 + 1e-4))


@pytest.mark.parametrize(
    "change",
    [
        one_bit,
        lambda model: model.weight[0, 7].fill_(float("nan")),
        lambda model: model.weight[:, 1].mul_(1 + 1e-6),
        lambda model: model.weight.add_(0.01 * torch.randn(10, 20, generator=torch.Generator().manual_seed(0))),
        lambda model: model.weight[0].mul_(-1),  # as long as before
        lambda model: model.bias.zero_(),
        lambda model: model.weight.copy_(model.weight * torch.linspace(0.9, 1.1, 20)),
    ],
)
def test_other_weights(change):
    with pytest.raises(InputError, match=r"worker 1 differ from .* worker 0 \(.* by .* of its largest\): mend it"):
        looked_at(change)


def test_a_model_that_begins_differently_on_each_worker(tmp_path):
    """As one does that draws its weights by NumPy's generator."""
    book = cut(community_graph(), 2, "random", tmp_path)

    def work(transport):
        model = ModelConfig(hidden=8).build(10, 4, seed=transport.rank)
        train(book, TrainConfig(steps=2), transport, model=model)

    with pytest.raises(InputError, match="its weights drawn by torch's own generator"):
        Hub(2).run(work)
