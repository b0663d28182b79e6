"""A model that torch.compile has been at is refused in one line, unless only modules without the graph are compiled."""

from __future__ import annotations

import pytest
import torch
from graphs import community_graph, cut
from torch import nn

from isthmus.comm import Hub
from isthmus.engine import TrainConfig, train
from isthmus.errors import InputError
from isthmus.nn import distribute


class Block(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, graph, x):
        return graph.aggregate(self.linear(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.block, self.last = nn.Linear(10, 8), Block(8), nn.Linear(8, 4)

    def forward(self, graph, x):
        return self.last(self.block(graph, self.first(x).relu()))


def in_place(model: nn.Module) -> nn.Module:
    model.compile(backend="eager")
    return model


def its_method(model: nn.Module) -> nn.Module:
    model.forward = torch.compile(model.forward, backend="eager")
    return model


WAYS = [lambda model: torch.compile(model, backend="eager"), in_place, its_method]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("where", ["Net", "block (Block)"])
def test_refused_in_one_line(way, where):
    model = Net()
    if where == "Net":
        model = way(model)
    else:
        model.block = way(model.block)
    with pytest.raises(InputError, match=r"torch\.compile cannot see through") as refusal:
        distribute(model)
    assert f" in {where}: compile only modules inside it" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_modules_without_the_graph_may_be_compiled(tmp_path):
    """And the result is that of the plain model."""
    book = cut(community_graph(), 2, "random", tmp_path)

    def losses(compile_it):
        def work(transport):
            torch.manual_seed(0)
            model, lines = Net(), []
            if compile_it:
                model.first = torch.compile(model.first, backend="eager")
            train(book, TrainConfig(steps=3), transport, model=model, watch=lambda line: lines.append(line["loss"]))
            return lines

        return Hub(1).run(work)[0]

    assert losses(True) == pytest.approx(losses(False), abs=1e-6)


def test_the_engine_refuses_it_too(tmp_path):
    book = cut(community_graph(), 1, "random", tmp_path)
    with pytest.raises(InputError, match="leave it out"):
        train(book, TrainConfig(steps=3), Hub(1).transport(0), model=torch.compile(Net(), backend="eager"))
