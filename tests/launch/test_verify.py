"""`isthmus verify` says why a model differs, if it is its own random numbers."""

from __future__ import annotations

import json
import sys

import pytest
import torch
from graphs import community_graph, cut
from runs import as_threads

from isthmus import cli
from isthmus.launch import local

MODELS = """
import torch
from torch import nn

class Usual(nn.Module):
    def __init__(self, features, classes, dropout):
        super().__init__()
        self.first, self.last, self.drop = nn.Linear(features, 8), nn.Linear(8, classes), nn.Dropout(dropout)

    def thin(self, graph, x):
        return self.drop(x)

    def forward(self, graph, x):
        return self.last(graph.aggregate(self.thin(graph, self.first(x).relu())))

class Functional(Usual):
    def __init__(self, features, classes):
        super().__init__(features, classes, 0.0)

    def thin(self, graph, x):
        return nn.functional.dropout(x, 0.5, self.training)

class Alpha(Usual):
    def __init__(self, features, classes, dropout):
        super().__init__(features, classes, dropout)
        self.drop = nn.AlphaDropout(0.5)

class Noisy(Functional):
    def thin(self, graph, x):
        return x * (torch.rand_like(x) > 0.5) if self.training else x

class ByNode(Functional):
    def thin(self, graph, x):
        return graph.dropout(x, 0.5 if self.training else 0.0)

class Mean(Functional):
    def thin(self, graph, x):
        return x - x.mean(0)
"""


@pytest.fixture
def verify(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "dropping.py").write_text(MODELS)
    cut(community_graph(), 2, "random", tmp_path).folder.rename("parts")
    monkeypatch.setattr(local, "start", as_threads)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)

    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["isthmus", "verify", "parts", *words])
        with pytest.raises(SystemExit) as end:
            cli.main()
        said = capsys.readouterr()
        return int(end.value.code or 0), said.out, said.err

    yield call
    sys.modules.pop("dropping", None)


@pytest.mark.parametrize(("model", "by"), [("Alpha", "drop (AlphaDropout, 0.5)"), ("Noisy", "torch.rand or the like")])
def test_random_numbers_of_its_own(verify, model, by):
    status, _, said = verify("--model", f"dropping:{model}")
    assert status == 1, said
    assert said.splitlines()[0].startswith("not equal")
    assert f"its own random numbers ({by}), different ones on each worker" in said
    assert "take torch.nn.functional.dropout or graph.dropout(x, p)" in said


@pytest.mark.parametrize("model", ["Usual", "Functional", "ByNode"])
def test_dropout_draws_by_node(verify, model):
    status, told, _ = verify("--model", f"dropping:{model}", "--json")
    assert (status, json.loads(told)["drawn_by"]) == (0, None)


def test_other_reasons_are_not_put_down_to_them(verify):
    """A mean over this worker's rows, say."""
    status, _, said = verify("--model", "dropping:Mean")
    assert (status, said.count("\n")) == (1, 1)
