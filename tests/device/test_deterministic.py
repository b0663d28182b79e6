"""Deterministic training: no operation is used that CUDA has no deterministic algorithm for, and bits repeat."""

from __future__ import annotations

from itertools import cycle

import pytest
import torch
from device.plans import MODELS, RECIPES, Plan, on_device, parts, suited
from device.test_training import compare

from isthmus.comm import Hub
from isthmus.device import deterministic
from isthmus.launch import job as jobs
from isthmus.launch.job import Job


@pytest.mark.parametrize(("recipe", "model"), [*zip(RECIPES, cycle(MODELS), strict=False)])
def test_no_recipe_or_model_needs_sums_in_any_order(tmp_path, recipe, model):
    """The pretend device refuses, as CUDA does, what torch's notes say has no deterministic algorithm there."""
    with deterministic(True):
        compare(Plan(recipe, suited(recipe, model), config={"steps": 2}), parts(tmp_path, 2, recipe), 2)


def test_runs_end_with_the_same_bits(tmp_path):
    book, plan = parts(tmp_path, 2), Plan("psc-gcn", "gat")
    with deterministic(True):
        first, second = (on_device(lambda t: plan.train(book, t), 2) for _ in range(2))
    assert first == second


def test_what_has_no_deterministic_algorithm_is_noticed():
    x = torch.ones(3, device="shadow")
    with deterministic(True), pytest.raises(RuntimeError, match="no deterministic implementation"):
        x.cumsum(0)
    assert x.cumsum(0).tolist() == [1, 2, 3]


@pytest.mark.parametrize("wanted", [False, True])
def test_the_option_holds_for_the_run_alone(tmp_path, monkeypatch, wanted):
    book, seen = parts(tmp_path, 1), []
    plain = jobs.train

    def watching(*given, **options):
        seen.append(torch.are_deterministic_algorithms_enabled())
        return plain(*given, **options)

    monkeypatch.setattr(jobs, "train", watching)
    asked = Plan("exact", config={"steps": 1}).of(book)
    jobs.run(Job("train", str(book.folder), asked, device="shadow", deterministic=wanted), Hub(1).transport(0))
    assert seen == [wanted]
    assert not torch.are_deterministic_algorithms_enabled()
