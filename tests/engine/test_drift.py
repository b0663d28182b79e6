"""Weights that differ between workers are found, and rounding is not taken for that."""

from __future__ import annotations

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


def test_equal_weights_and_other_rounding():
    looked_at(lambda model: None)
    looked_at(lambda model: model.weight.mul_(1 + 1e-6))
    looked_at(lambda model: None, weights=0.0)
    looked_at(lambda model: None, weights=float("nan"))


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.weight.add_(0.01 * torch.randn(10, 20, generator=torch.Generator().manual_seed(0))),
        lambda model: model.weight[0].mul_(-1),  # as long as before
        lambda model: model.bias.zero_(),
        lambda model: model.weight.copy_(model.weight * torch.linspace(0.9, 1.1, 20)),
    ],
)
def test_other_weights(change):
    with pytest.raises(InputError, match=r"the weights of worker 1 differ from those of worker 0 \(by .*%\): mend it"):
        looked_at(change)


def test_a_model_that_begins_differently_on_each_worker(tmp_path):
    """As one does that draws its weights by NumPy's generator."""
    book = cut(community_graph(), 2, "random", tmp_path)

    def work(transport):
        model = ModelConfig(hidden=8).build(10, 4, seed=transport.rank)
        train(book, TrainConfig(steps=2), transport, model=model)

    with pytest.raises(InputError, match="its weights drawn by torch's own generator"):
        Hub(2).run(work)
