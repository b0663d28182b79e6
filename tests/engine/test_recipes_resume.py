"""Every recipe goes on bit for bit from a checkpoint taken while rows are under way."""

from __future__ import annotations

import json

import pytest
import torch
from graphs import community_graph, cut
from safetensors.torch import load_file

from isthmus import recipes
from isthmus.comm import Hub
from isthmus.engine import TrainConfig, train
from isthmus.errors import InputError
from isthmus.nn import ModelConfig

BARE = {"rate": 0.4, "least": 0}
CASES = [
    ("exact", {"bits": 4, "feedback": True}),
    ("vanilla", {"bits": 8, "rounding": "stochastic"}),
    ("cagnet", {"bits": 8}),
    pytest.param("bns", {"rate": 0.3}, marks=pytest.mark.full),
    ("bns", {"rate": 0.3, "bits": 8, "feedback": True}),
    pytest.param("boundary-edge", {"rate": 0.5}, marks=pytest.mark.full),  # as bns
    ("drop-edge", {"rate": 0.5}),
    ("pipegcn", {"staleness": 3}),
    ("pipegcn", {"staleness": 1, "smooth_features": 0.95, "smooth_gradients": 0.9}),
    ("pipegcn", {"staleness": 2, "start": "as-published", "bits": "bf16", "feedback": True}),
    ("psc-gcn", {**BARE, "staleness": 0, "refresh": 4}),
    ("psc-gcn", {**BARE, "staleness": 2, "refresh": 3}),
    ("psc-gcn", {**BARE, "staleness": 3, "refresh": 2, "sampler": "coupled", "estimator": "self-normalised"}),
    ("psc-gcn", {**BARE, "staleness": 2, "refresh": 3, "cache_rows": 0.3, "bits": 8}),
    ("psc-gcn", {"rate": 1, "staleness": 1, "cache_rows": 20, "cache": "degree"}),
    ("psc-gcn", {**BARE, "staleness": 2, "refresh": 1}),  # gradients under way are of a graph of old sizes
    ("isthmus", {"rate": 0.4, "refresh": 3, "guard": "off"}),
    pytest.param("isthmus", {"rate": 0.4, "refresh": 1, "guard": "off"}, marks=pytest.mark.full),
    (
        "isthmus",
        {"rate": 0.4, "refresh": 3, "bits": 4, "staleness": 2, "cache_rows": 0.2, "feedback": True, "guard": "off"},
    ),
    ("sancus-e", {"bound": 2}),
    ("sancus-a", {"bound": 2, "clip": 0.01}),
    ("sancus-h", {"bound": 0.1}),
    ("skip-g", {"bound": 2}),
    ("adaqp", {"reassign": 3}),
    ("ec-graph", {"bits": 2, "period": 3}),
]


def run(book, recipe, options, steps, out, resume=False, **changes):
    """Last weights and summary of a run of that many steps, workers as threads."""
    model = ModelConfig("sage", layers=3, hidden=8, dropout=0.3)
    config = TrainConfig(model, recipe, options, steps=steps, eval_every=50, checkpoint_every=4, seed=1, **changes)
    policy = recipes.find(recipe).policy(options)
    results = Hub(book.num_parts).run(
        lambda transport: train(book, config, transport, policy=policy, out=out, resume=resume)
    )
    last = load_file(out / "checkpoints" / f"step-{steps}" / "model.safetensors")
    return torch.cat([tensor.flatten() for tensor in last.values()]), results[0].summary


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    return cut(community_graph(), 3, "metis", tmp_path_factory.mktemp("parts"))


@pytest.mark.parametrize(("recipe", "options"), CASES)
def test_a_resumed_run_has_the_same_bits(book, tmp_path, recipe, options):
    whole, _ = run(book, recipe, options, 10, tmp_path / "whole")
    run(book, recipe, options, 6, tmp_path / "broken")  # ends at step 6, in the middle of any pipeline
    went_on, summary = run(book, recipe, options, 10, tmp_path / "broken", resume=True)
    assert torch.equal(whole, went_on)
    assert summary["steps"] == 10
    for file in ("metrics.jsonl", "worker-1.jsonl"):
        steps = [json.loads(line)["step"] for line in (tmp_path / "broken" / file).read_text().splitlines()]
        assert steps == list(range(1, 11))


@pytest.mark.parametrize("recipe", ["psc-gcn", "isthmus", "pipegcn"])
def test_a_worker_alone_goes_on_with_the_same_bits(tmp_path, recipe):
    """One worker exchanges nothing, but its graphs are drawn by sizes that were measured before."""
    book, options = cut(community_graph(), 1, "metis", tmp_path), {"staleness": 1}
    whole, _ = run(book, recipe, options, 13, tmp_path / "whole")
    run(book, recipe, options, 6, tmp_path / "broken")
    assert torch.equal(whole, run(book, recipe, options, 13, tmp_path / "broken", resume=True)[0])


def test_state_of_another_machine_is_asked_for(book, tmp_path):
    """Every worker has written to a disk of its own: then nobody has a whole checkpoint."""

    def work(transport, steps, resume):
        config = TrainConfig(model=ModelConfig(hidden=8), recipe="pipegcn", steps=steps, eval_every=2)
        policy, out = recipes.find("pipegcn").policy({}), tmp_path / f"machine-{transport.rank}"
        return train(book, config, transport, policy=policy, out=out, resume=resume)

    Hub(3).run(lambda transport: work(transport, 4, False))
    with pytest.raises(InputError, match="a folder that they share"):
        Hub(3).run(lambda transport: work(transport, 8, True))


def test_another_option_is_refused(book, tmp_path):
    run(book, "pipegcn", {"staleness": 1}, 4, tmp_path / "run")
    with pytest.raises(InputError, match=r"started with other options: options.staleness was 1 and is 2 now: "):
        run(book, "pipegcn", {"staleness": 2}, 8, tmp_path / "run", resume=True)


def test_what_a_run_tells_of_stale_rows(book, tmp_path):
    _, summary = run(book, "pipegcn", {"staleness": 2}, 12, tmp_path / "run", probe_every=4, cut="edge")
    assert summary["staleness"]["max"] == 2
    assert 1.5 < summary["staleness"]["mean"] <= 2
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    probed = [line for line in lines if "error" in line]
    assert [line["step"] for line in probed] == [1, 5, 9]
    assert max(probed[0]["error"].values()) == 0  # the first step waits for fresh rows
    assert min(probed[1]["error"].values()) > 0
    worker = json.loads((tmp_path / "run" / "worker-2.jsonl").read_text().splitlines()[5])
    assert worker["age"] == {"mean": 2.0, "max": 2}
    sent = {(site, direction) for site, direction, *_ in worker["links"]}
    assert sent == {(1, "forward"), (2, "forward"), (1, "backward"), (2, "backward"), ("weights", "reduce")}


DRAWN = {"metis": ("psc-gcn", {**BARE, "refresh": 3}), "random": ("isthmus", {"rate": 0.4, "refresh": 2})}


@pytest.mark.parametrize("method", DRAWN)
def test_probing_changes_nothing(tmp_path, method):
    """Neither what is trained nor what is counted; rows that are kept for the run stay as they are, too."""
    book = cut(community_graph(), 3 if method == "metis" else 2, method, tmp_path)
    for recipe, options in (("pipegcn", {"smooth_features": 0.9}), ("bns", {"rate": 0.4, "bits": 8}), DRAWN[method]):
        plain, summary = run(book, recipe, options, 9, tmp_path / recipe)
        probed, other = run(book, recipe, options, 9, tmp_path / f"{recipe}-probed", probe_every=2)
        assert torch.equal(plain, probed)
        assert summary["bytes_per_step"] == other["bytes_per_step"]
        assert summary["staleness"] == other["staleness"]
