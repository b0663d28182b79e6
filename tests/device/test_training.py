"""Training on the pretend accelerator gives the CPU's numbers, for everything that `plans` lists."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch
from device.plans import LIMIT, MODELS, RECIPES, VARIANTS, WORKERS, Plan, on_device, on_host, parts, suited
from products import each_value
from safetensors.torch import load_file

from isthmus import Worker, recipes
from isthmus.comm import Where
from isthmus.engine import PredictConfig, checkpoint, predict, train
from isthmus.engine.prepare import prepare
from isthmus.engine.saved_run import SavedRun
from isthmus.errors import InputError
from isthmus.kernels import native


def compare(plan, book, workers, limit=LIMIT):
    try:
        here = on_host(lambda transport: plan.train(book, transport), workers)
    except InputError as error:  # such as a model of PyG under a vertex-cut
        with pytest.raises(InputError, match=re.escape(str(error))):
            on_device(lambda transport: plan.train(book, transport), workers)
        return
    there = on_device(lambda transport: plan.train(book, transport), workers)
    for mine, cpus in zip(there, here, strict=True):
        assert mine == pytest.approx(cpus, rel=limit, abs=limit, nan_ok=True)


@pytest.mark.parametrize(*each_value(recipe=RECIPES, model=MODELS, workers=WORKERS))
def test_every_recipe_and_model(tmp_path, recipe, model, workers):
    compare(Plan(recipe, suited(recipe, model)), parts(tmp_path, workers, recipe), workers)


@pytest.mark.parametrize("name", VARIANTS)
def test_options_that_lead_elsewhere(tmp_path, name):
    recipe, options = VARIANTS[name]
    rounded = name == "bf16"  # another order of sums is rounded otherwise, as within the CPU's own twins
    config = {"dtype": "float32"} if rounded else {}
    compare(Plan(recipe, "sage", options, config), parts(tmp_path, 2), 2, 1e-2 if rounded else LIMIT)


@pytest.mark.parametrize("config", [{"inductive": True}, {"features": "standard"}, {"features": "rows"}])
def test_data_in_other_forms(tmp_path, config):
    compare(Plan("exact", "sage", config=config), parts(tmp_path, 2), 2)


@pytest.mark.parametrize(("model", "batch"), [("gcn", "apart"), ("gat", "together")])
def test_weighted_edges_of_batches(tmp_path, model, batch):
    compare(Plan("distdgl", model, config={"batch": batch}), parts(tmp_path, 2, weighted=True), 2)


def test_unsupervised(tmp_path):
    compare(Plan("bytegnn", "sage", config={"loss": "skip-gram,walk=2"}), parts(tmp_path, 2), 2)


@pytest.mark.parametrize("form", [{"directed": True}, {"multilabel": True}], ids=str)
def test_directed_and_multilabel_graphs(tmp_path, form):
    book = parts(tmp_path, 2, **form)
    there, here = (where(lambda transport: trained(book, transport), 2)[0] for where in (on_device, on_host))
    assert there == pytest.approx(here, abs=LIMIT)


def trained(book, transport):
    """The best validation score of a whole run, and the norms of its weights."""
    result = train(book, Plan("exact").of(book), transport)
    return [result.summary["best_val"], *(float(weight.detach().norm()) for weight in result.model.parameters())]


# Each has a state of another kind; the next test has every recipe.
STATES = ("exact", "pipegcn", "psc-gcn", "isthmus", "sancus-h", "cdfgnn", "ec-graph", "distdgl", "vr-gcn")


@pytest.mark.parametrize(*each_value(recipe=STATES, first=["device", "host"]))
def test_a_run_resumes_on_the_other_kind_of_device(tmp_path, recipe, first):
    book, plan = parts(tmp_path, 2, recipe), Plan(recipe, "sage", config={"steps": 6, "eval_every": 2})
    policy = recipes.find(recipe).policy(plan.of(book).options)

    def run(where, folder, steps, resume=False):
        asked = Plan(recipe, "sage", config={"steps": steps, "eval_every": 2}).of(book)
        work = lambda transport: train(book, asked, transport, policy=policy, out=folder, resume=resume)  # noqa: E731
        return where(work, 2)[0]

    one, other = (on_device, on_host) if first == "device" else (on_host, on_device)
    run(one, tmp_path / "run", 4)
    resumed = run(other, tmp_path / "run", 6, resume=True)
    whole = run(on_host, tmp_path / "whole", 6)
    for mine, cpus in zip(resumed.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.allclose(mine.detach().to("cpu"), cpus.detach().to("cpu"), rtol=LIMIT, atol=LIMIT)


@pytest.fixture
def without_core(monkeypatch):
    """The CPU computes by the torch twins, as the pretend device does: in the same order, so to the same bits."""
    monkeypatch.setenv("ISTHMUS_NATIVE", "0")
    native.core.cache_clear()
    yield
    monkeypatch.undo()
    native.core.cache_clear()


def bits(folder, step):
    """Every tensor of a checkpoint, and its counters; not its checksums, since json is written in any order."""
    files = sorted((folder / "checkpoints" / f"step-{step}").glob("*.safetensors"))
    tensors = {f"{file.name} {name}": tensor for file in files for name, tensor in load_file(file).items()}
    state = json.loads((folder / "checkpoints" / f"step-{step}" / "state.json").read_text())
    return tensors, state


def assert_same_bits(one, other):
    (tensors, state), (others, its) = one, other
    assert tensors.keys() == others.keys()
    differ = [name for name, tensor in tensors.items() if not same_bits(tensor, others[name])]
    assert not differ
    assert state == its


def same_bits(one, other):
    return one.dtype == other.dtype and torch.equal(*(t.contiguous().flatten().view(torch.uint8) for t in (one, other)))


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_run_resumed_on_the_other_kind_of_device_ends_with_the_same_bits(tmp_path, without_core, recipe):
    book, policy = parts(tmp_path, 2, recipe), recipes.find(recipe).policy({})

    def run(where, folder, steps, resume=False):
        asked = Plan(recipe, "sage", config={"steps": steps, "eval_every": 2}).of(book)
        where(lambda t: train(book, asked, t, policy=policy, out=folder, resume=resume), 2)
        return bits(folder, steps)

    from_device, from_host = tmp_path / "from device", tmp_path / "from host"
    assert_same_bits(run(on_device, from_device, 4), run(on_host, from_host, 4))
    on_the_host, there = run(on_host, from_device, 6, resume=True), run(on_device, from_host, 6, resume=True)
    assert_same_bits(on_the_host, there)
    assert_same_bits(there, run(on_host, tmp_path / "whole", 6))


@pytest.mark.parametrize("where", [on_device, on_host], ids=["device", "host"])
def test_what_is_saved_and_loaded_is_the_same_bits_whichever_device_wrote_it(tmp_path, where):
    """A checkpoint that is loaded on either kind of device and saved again there: not a bit has changed."""
    book, plan, out = parts(tmp_path, 2), Plan("pipegcn", "sage", config={"ema": 0.9}), tmp_path / "run"
    policy = recipes.find("pipegcn").policy({})
    made = where(lambda t: train(book, plan.of(book), t, policy=policy, out=out), 2)[0].model.state_dict()
    best = SavedRun.read(out).best
    assert made.keys() == best.keys()
    assert all(same_bits(made[name].to("cpu"), tensor) for name, tensor in best.items())
    step, written = plan.of(book).steps, bits(out, plan.of(book).steps)
    for number, there in enumerate((on_device, on_host)):

        def again(transport, copy=tmp_path / f"copy-{number}"):
            views, model, learner = prepare(book, plan.of(book), policy, transport)
            run = views.train.graph.runtime
            identity = written[1]["identity"]
            progress, kept, size = checkpoint.restore(out, step, model, learner, identity)
            run.restore(checkpoint.restore_worker(out, step, transport.rank))
            checkpoint.save_worker(copy, step, transport.rank, run.state())
            transport.all_reduce(torch.zeros(1), Where("checkpoint", "reduce", step))
            if transport.rank == 0:
                checkpoint.save(copy, progress, model, learner, kept, identity, size)
            run.drain()

        there(again, 2)
        assert_same_bits(written, bits(tmp_path / f"copy-{number}", step))


def test_predictions_are_the_cpus(tmp_path):
    book, plan, what = parts(tmp_path, 2), Plan("exact", "sage"), ("class", "scores", "embedding")
    on_host(lambda transport: train(book, plan.of(book), transport, out=tmp_path / "run"), 2)
    for stem, where in (("cpu", on_host), ("there", on_device)):
        asked = PredictConfig(str(tmp_path / "run"), str(tmp_path / f"{stem}.npy"), what)
        where(lambda transport, asked=asked: predict(book, asked, transport), 2)
    for name in what:
        here, there = (np.load(tmp_path / f"{stem}.{name}.npy") for stem in ("cpu", "there"))
        assert here.shape == there.shape
        assert np.allclose(here, there, atol=1e-6)


def test_bytes_and_rows_are_counted_alike(tmp_path):
    book, asked = parts(tmp_path, 2), Plan("exact", "sage").of(parts(tmp_path / "again", 2))
    there, here = (where(lambda t: train(book, asked, t).summary, 2)[0] for where in (on_device, on_host))
    assert (there["bytes_per_step"], there["rows"]) == (here["bytes_per_step"], here["rows"])


def test_backward_in_a_thread_of_its_own(tmp_path):
    """As on CUDA, where autograd has a thread per device."""
    book, plan = parts(tmp_path, 1), Plan("psc-gcn", "sage")

    def work(transport):
        transport.use(torch.device("shadow", 0))
        return plan.train(book, transport)

    assert on_host(work, 1)[0] == pytest.approx(on_host(lambda t: plan.train(book, t), 1)[0], abs=LIMIT)


def test_a_loop_of_ones_own(tmp_path):
    book = parts(tmp_path, 2)
    first = GCN(book.part(0).x.shape[1], 4).state_dict()

    def work(transport):
        with Worker(book, transport=transport, device=str(transport.device), dtype="float64") as worker:
            model = GCN(worker.num_features, worker.num_classes)
            model.load_state_dict(first)
            if worker.device.type != "cpu":
                with pytest.raises(InputError, match=r"model\.to\(worker\.device\)"):
                    worker.prepare(model, torch.optim.SGD(model.parameters()))
            model.to(worker.device)
            optimizer = torch.optim.Adam(model.parameters())
            worker.prepare(model, optimizer)
            losses = []
            for _ in range(3):
                optimizer.zero_grad()
                out = model(worker.graph, worker.x)[worker.train_mask]
                losses.append(worker.step(torch.nn.functional.cross_entropy(out, worker.y[worker.train_mask])))
            return [*losses, *worker.evaluate(model).values(), float(worker.predict(model).sum())]

    assert on_device(work, 2)[0] == pytest.approx(on_host(work, 2)[0], abs=1e-9)


class GCN(torch.nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.first = torch.nn.Linear(features, classes, dtype=torch.float64)

    def forward(self, graph, x):
        return graph.aggregate(self.first(x), "mean")
