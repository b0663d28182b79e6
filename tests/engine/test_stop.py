"""A run that is asked to end writes a checkpoint of its step, on all workers at once, and can be resumed from there."""

from __future__ import annotations

import signal

import pytest
import torch
from graphs import community_graph, cut
from safetensors.torch import load_file

from isthmus.comm import Hub
from isthmus.engine import TrainConfig, train
from isthmus.engine.stop import Stop
from isthmus.errors import Stopped
from isthmus.nn import ModelConfig
from isthmus.recipes import find

SHAPE = ModelConfig(model="sage", hidden=8, layers=2)
STEPS = 9


def config(recipe="exact", **changes):
    return TrainConfig(model=SHAPE, recipe=recipe, steps=STEPS, **{"eval_every": 4, "seed": 5, **changes})


def run(book, asked, out, resume=False, at=None, who=0, number=signal.SIGTERM):
    """Workers as threads; worker `who` is sent a signal while step `at` is being recorded."""

    def work(transport):
        stop = Stop()

        def watch(line):
            if line["step"] == at and transport.rank == who:
                stop.signal = number

        policy = find(asked.recipe).policy(asked.options)
        try:
            return train(book, asked, transport, policy=policy, out=out, resume=resume, watch=watch, stop=stop)
        except Stopped as end:
            return end

    return Hub(book.num_parts).run(work)


@pytest.mark.parametrize(("recipe", "workers"), [("exact", 1), ("exact", 3), ("pipegcn", 3)])
def test_all_stop_at_the_same_step_and_go_on_bit_for_bit(tmp_path, recipe, workers):
    book = cut(community_graph(), workers, "random", tmp_path)
    ends = run(book, config(recipe), tmp_path / "broken", at=5, who=workers - 1)
    assert [type(end) for end in ends] == [Stopped] * workers
    assert [end.status for end in ends] == [143] * workers
    assert "checkpoint of step 6 written; to go on: isthmus train --resume" in str(ends[0])
    assert [str(end) for end in ends[1:]] == [""] * (workers - 1)
    found = sorted(path.name for path in (tmp_path / "broken/checkpoints").iterdir())
    assert found == ["step-0", "step-4", "step-6"]
    run(book, config(recipe), tmp_path / "broken", resume=True)
    run(book, config(recipe), tmp_path / "whole")
    one, other = (load_file(tmp_path / name / "checkpoints/step-9/model.safetensors") for name in ("broken", "whole"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_interrupted_by_hand(tmp_path):
    book = cut(community_graph(), 2, "random", tmp_path)
    ends = run(book, config(), None, at=5, who=1, number=signal.SIGINT)
    assert [end.status for end in ends] == [143, 130]  # who only heard of it was terminated
    assert "nothing was written" in str(ends[0])


def test_a_run_that_is_over_ends_well(tmp_path):
    book = cut(community_graph(), 2, "random", tmp_path)
    ends = run(book, config(), tmp_path / "run", at=STEPS - 1)
    assert [end.summary["steps"] for end in ends] == [STEPS] * 2


def test_it_costs_no_message(tmp_path):
    """The wish is one more number in the sum of the gradients, besides the loss and a flag for each of them."""
    book = cut(community_graph(), 3, "random", tmp_path)
    result = run(book, config(), None)[0]
    numbers = sum(p.numel() + 1 for p in result.model.parameters()) + 2
    assert result.summary["bytes_per_step"]["weights"] == 2 * 2 * numbers * 4  # of all workers
