"""Recipe isthmus with auto: as much is saved as this link needs, and no more."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from graphs import community_graph, cut, sparse_rows
from safetensors.torch import load_file
from torch import nn

from isthmus import recipes
from isthmus.comm import Hub
from isthmus.engine import TrainConfig
from isthmus.errors import InputError
from isthmus.launch import auto
from isthmus.launch.auto import Measured, choose
from isthmus.launch.job import Job, run
from isthmus.nn import ModelConfig


@pytest.mark.parametrize(
    ("fresh", "whole", "expected"),
    [
        (0.05, 0.1, {"staleness": 0, "bits": 32, "rate": 1.0}),  # waiting is negligible: nothing is given up
        (0.5, 0.8, {"staleness": 1, "bits": 32, "rate": 1.0}),  # a pipeline hides it
        (1.0, 3.0, {"staleness": 1, "bits": 8, "rate": 1.0}),
        (2.0, 6.0, {"bits": 8, "rate": 0.5}),
        (9.0, 30.0, {"bits": 8, "rate": 0.1}),
        (1e3, 1e4, {"bits": 4, "rate": 0.1}),  # not enough, but there is no more
    ],
)
def test_no_more_is_given_up_than_needed(fresh, whole, expected):
    options = choose(Measured(1.0, fresh, whole))
    assert {name: options[name] for name in expected} == expected
    assert recipes.find("isthmus").policy({**options, "auto": True})


def test_a_run_chooses_once(tmp_path, monkeypatch):
    book = cut(community_graph(), 2, "metis", tmp_path)
    out = tmp_path / "run"

    def go(steps, resume, folder=out):
        options = recipes.find("isthmus").settings({"auto": True})
        config = TrainConfig(ModelConfig(hidden=8), "isthmus", options, steps=steps, eval_every=50)
        job = Job("train", str(book.folder), config, str(folder), resume, threads=1, quiet=True)
        return Hub(2).run(lambda transport: run(job, transport))[0]

    monkeypatch.setattr(auto, "choose", lambda measured: {**auto._LADDER[2][1]})
    summary = go(4, resume=False)
    assert summary["options"]["rate"] == 0.5
    assert summary["options"]["auto"] is True
    assert json.loads((out / "config.json").read_text())["options"]["bits"] == 8
    go(9, resume=False, folder=tmp_path / "whole")
    monkeypatch.setattr(auto, "choose", lambda measured: pytest.fail("a resumed run measures nothing"))
    go(9, resume=True)
    one, other = (load_file(f / "checkpoints/step-9/model.safetensors") for f in (out, tmp_path / "whole"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_measuring_on_one_machine_finds_computing(tmp_path):
    book = cut(community_graph(), 2, "metis", tmp_path)
    config = TrainConfig(ModelConfig(hidden=8))
    found = Hub(2).run(lambda transport: auto.measure(book, config, transport))
    assert found[0] == found[1]  # all workers choose the same
    assert found[0].compute > 0


class OwnNet(nn.Module):
    """A model of one's own, which reads rows as plain tensors."""

    def __init__(self, features, classes):
        super().__init__()
        self.last = nn.Linear(features, classes)

    def forward(self, graph, x):
        return graph.aggregate(self.last(x))


def test_measuring_with_a_model_of_ones_own_on_sparse_features(tmp_path):
    graph = community_graph()
    graph = replace(graph, x=sparse_rows(np.where(graph.x > 0.5, graph.x, 0)))
    book = cut(graph, 2, "metis", tmp_path)
    found = Hub(2).run(lambda transport: auto.measure(book, TrainConfig(ModelConfig(f"{__name__}:OwnNet")), transport))
    assert found[0].compute > 0


def test_what_is_read_in_the_last_layer_goes_by_the_rate_unless_it_is_given():
    isthmus = recipes.find("isthmus")
    assert isthmus.policy({}).last_layer.rate == 0.1
    assert isthmus.policy({"rate": 0.3}).last_layer.rate == 0.3
    assert isthmus.policy({"rate": 0.3, "last_rate": 0.5}).last_layer.rate == 0.5
    assert isthmus.policy({"rate": 0.3, "sampler": "coupled"}).last_layer is None
    assert isthmus.policy(choose(Measured(1.0, 0.05, 0.1))).last_layer is None
    with pytest.raises(InputError, match="coupled draws inner neighbours in every layer: last_rate is not for it"):
        isthmus.policy({"sampler": "coupled", "last_rate": 0.5})
