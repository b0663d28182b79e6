"""A run folder may come from anybody: what it holds is checked, and code that it names is not run unasked."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from graphs import community_graph
from runs import ASKED, trained

from isthmus.cli import app
from isthmus.comm import Hub
from isthmus.engine import PredictConfig, TrainConfig, checkpoint, predict, train
from isthmus.engine.saved_run import SavedRun
from isthmus.errors import InputError
from isthmus.files import sha256
from isthmus.nn import ModelConfig

OWN = """
from pathlib import Path
from torch import nn

Path("IMPORTED").touch()

class Net(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.last = nn.Linear(features, classes)

    def forward(self, graph, x):
        return self.last(graph.aggregate(x))

def make(features, classes):
    return Net(features, classes)

def harm(*given):
    Path("HARM").touch()
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A run with a model of one's own, in a folder where its module can be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("foreign_net.py").write_text(OWN)
    config = TrainConfig(model=ModelConfig("foreign_net:Net"), steps=4, eval_every=2)
    book, run, _ = trained(community_graph(), 1, tmp_path, config)
    sys.modules.pop("foreign_net")
    Path("IMPORTED").unlink()
    yield book, run
    sys.modules.pop("foreign_net", None)


def edit(file: Path, **changes) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def resum(folder: Path) -> None:
    """Checksums that fit again, as somebody would write them who changes a checkpoint on purpose."""
    sums = {file.name: sha256(file) for file in folder.iterdir() if file.name != "checksums.json"}
    (folder / "checksums.json").write_text(json.dumps(sums))


def predicted(book, run, **options):
    asked = PredictConfig(str(run), "out.npy", ("class",), overwrite=True, **options)
    return Hub(1).run(lambda transport: predict(book, asked, transport))[0]


def test_a_model_that_only_the_run_names_is_not_imported(own):
    with pytest.raises(InputError, match=r"only if you say so: give --model foreign_net:Net, or --trust"):
        predicted(*own)
    assert not Path("IMPORTED").exists()


@pytest.mark.parametrize("options", [{"model": "foreign_net:Net"}, {"model": "foreign_net:make"}, {"trust": True}])
def test_a_model_that_is_named_again_or_trusted(own, options):
    assert predicted(*own, **options)["rows"] == 120


def test_trust_runs_models_alone(own):
    book, run = own
    for name in ("foreign_net:harm", "foreign_net:make", "subprocess:call"):
        edit(run / "config.json", model={**json.loads((run / "config.json").read_text())["model"], "model": name})
        with pytest.raises(InputError, match=r"not a subclass of nn\.Module.*name it yourself with --model"):
            predicted(book, run, trust=True)
        with pytest.raises(InputError, match="only if you say so"):
            predicted(book, run)
    assert not Path("HARM").exists()


def test_the_command(own):
    from typer.testing import CliRunner

    _, run = own
    asked = ["predict", str(run), "--out", "nodes.npy", "--what", "class", "--workers", "1"]
    refused = CliRunner().invoke(app, asked)
    assert isinstance(refused.exception, InputError)
    assert not Path("IMPORTED").exists()
    assert CliRunner().invoke(app, [*asked, "--model", "foreign_net:Net"]).exit_code == 0
    assert CliRunner().invoke(app, [*asked, "--trust", "--overwrite"]).exit_code == 0


def test_a_result_of_this_session_needs_no_trust(own):
    import isthmus

    book, _ = own
    result = isthmus.train(book, model="foreign_net:Net", steps=2, eval_every=1, quiet=True, out="again")
    assert result.predict("a.npy")["rows"] == isthmus.predict(result, "b.npy")["rows"] == 120


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("foreign")
    return trained(community_graph(), 1, folder)


@pytest.fixture
def run(original, tmp_path):
    import shutil

    return shutil.copytree(original[1], tmp_path / "run")


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"workers": "2"}, "workers is '2', not a whole number"),
        ({"parts": ["a"]}, "parts is a list, not text"),
        ({"lr": "0.1"}, "lr is '0.1', not a number"),
        ({"steps": True}, "steps is True, not a whole number"),
        ({"model": "gcn"}, "model is 'gcn', not a json object"),
        ({"model": {"hidden": 8.5}}, "model.hidden is 8.5, not a whole number"),
        ({"dtype": "int8"}, "unknown dtype"),
        ({"options": []}, "options is a list, not a json object"),
        ({"model_class": 3}, "model_class is 3, not text"),
    ],
)
def test_fields_of_config(run, changes, word):
    edit(run / "config.json", **changes)
    with pytest.raises(InputError, match=word):
        SavedRun.read(run)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"progress": {"step": "8"}}, "progress.step is '8', not a whole number"),
        ({"progress": {"best": {"val": "x"}}}, "progress.best.val is 'x', not a number"),
        ({"optimizer": {}}, "optimizer is a json object, not a list"),
        ({"identity": 3}, "identity is 3, not a json object"),
        ({"workers": None}, "workers is None, not a whole number"),
    ],
)
def test_fields_of_a_checkpoint(run, changes, word):
    newest = run / "checkpoints" / f"step-{checkpoint.steps(run)[-1]}"
    edit(newest / "state.json", **changes)
    resum(newest)
    with pytest.raises(InputError, match=word):
        SavedRun.read(run)


@pytest.mark.parametrize("name", ["../config.json", "/dev/zero", "a/b", ""])
def test_checksums_of_files_elsewhere(run, name):
    newest = run / "checkpoints" / f"step-{checkpoint.steps(run)[-1]}"
    edit(newest / "checksums.json", **{name: "0"})
    with pytest.raises(InputError, match="does not name its files"):
        SavedRun.read(run)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda state: state["optimizer"][0].update(lr="fast"),
        lambda state: state["optimizer"][0].update(betas=[0.9]),
        lambda state: state["optimizer"][0].update(params=[7]),
        lambda state: state["optimizer"][0].update(other={"a": 1}),
        lambda state: state["optimizer"].append({}),
    ],
)
def test_an_optimizer_of_another_kind(original, run, spoil):
    book = original[0]
    for step in checkpoint.steps(run):
        file = run / "checkpoints" / f"step-{step}" / "state.json"
        state = json.loads(file.read_text())
        spoil(state)
        file.write_text(json.dumps(state))
        resum(file.parent)
    longer = TrainConfig(**{**vars(ASKED), "steps": 10})
    with pytest.raises(InputError, match="does not fit this model"):
        Hub(1).run(lambda transport: train(book, longer, transport, out=run, resume=True))


def test_weights_of_another_shape(original, run):
    from safetensors.torch import load_file, save_file

    newest = run / "checkpoints" / f"step-{checkpoint.steps(run)[-1]}"
    for name in ("model", "optimizer"):
        tensors = {k: torch.zeros(3, 3) for k in load_file(newest / f"{name}.safetensors")}
        save_file(tensors, newest / f"{name}.safetensors")
        resum(newest)
        longer = TrainConfig(**{**vars(ASKED), "steps": 10})
        with pytest.raises(InputError, match="does not fit this model"):
            Hub(1).run(lambda transport, asked=longer: train(original[0], asked, transport, out=run, resume=True))
