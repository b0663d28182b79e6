"""isthmus.train is the command of that name: the same options, refusals and results, as a function."""

from __future__ import annotations

import inspect
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import own_losses
import pytest
import torch
from graphs import community_graph, cut, whole_edges

import isthmus
from isthmus.api.options import importable
from isthmus.errors import InputError
from isthmus.nn import ModelConfig

QUICK = {"hidden": 8, "steps": 6, "eval_every": 2, "quiet": True}
MODELS = Path(__file__).parent / "models.py"


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    """Tests run in an empty folder, in which a file own_models.py can be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_models.py").write_text(MODELS.read_text())
    yield
    sys.modules.pop("own_models", None)


def losses(run: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_a_graph_in_memory_trains_like_its_parts(tmp_path, workers_are_threads):
    graph = community_graph()
    book = isthmus.partition(graph, 2, out=tmp_path / "parts", quiet=True)
    assert repr(book).startswith(f"Book({tmp_path / 'parts'}: community in 2 part(s) by metis")
    by_parts = isthmus.train(book, model="sage", dtype="float64", **QUICK, out="by-parts")
    in_memory = isthmus.train(graph, model="sage", dtype="float64", workers=2, **QUICK)
    assert in_memory.run == Path("runs/1")
    assert losses(by_parts.run) == losses(in_memory.run)
    options = ("--hidden", "8", "--steps", "6", "--eval-every", "2", "--quiet", "--out", "by-command")
    command = [sys.executable, "-m", "isthmus", "train", "parts", "--model", "sage", "--dtype", "float64", *options]
    subprocess.run(command, check=True, timeout=120)
    assert losses(Path("by-command")) == losses(by_parts.run)


def test_the_result(tmp_path, workers_are_threads):
    result = isthmus.train(cut(community_graph(), 2, "random", tmp_path), **QUICK, out="run")
    assert result.summary == json.loads(Path("run/summary.json").read_text())
    assert result.scores["test"] == result.summary["test"]["score"]
    assert result.metric == "accuracy"
    assert result.bytes_per_step["embeddings"] > 0
    assert result.seconds["total"] > result.step_seconds["median"] > 0
    assert [line["step"] for line in result.metrics] == [1, 2, 3, 4, 5, 6]
    assert repr(result).startswith("community: exact on 2 worker(s)\n  test accuracy        0.")
    assert "<caption>community: exact on 2 worker(s)</caption>" in result._repr_html_()
    assert result.report() == Path("run/report.html")
    assert result.report().exists()
    done = result.predict("nodes.npy", what="class")
    assert done["rows"] == len(np.load("nodes.npy")) == 120
    with pytest.raises(InputError, match="exist"):
        isthmus.predict(result, "nodes.npy", what=["class"])


def test_resume_goes_on(tmp_path):
    book = cut(community_graph(), 1, "random", tmp_path)
    isthmus.train(book, **QUICK, out="run")
    assert isthmus.train(book, **{**QUICK, "steps": 9}, out="run", resume=True).summary["steps"] == 9


def test_pyg_data(tmp_path):
    pytest.importorskip("torch_geometric", reason="PyG is not installed: pip install 'isthmus[pyg]'")
    from torch_geometric.data import Data

    graph = community_graph()
    masks = {name: torch.from_numpy(getattr(graph, name)[:, 0]) for name in ("train_mask", "val_mask", "test_mask")}
    x, y = torch.from_numpy(graph.x).float(), torch.from_numpy(graph.y)
    data = Data(x=x, y=y, edge_index=whole_edges(graph), **masks)
    assert repr(isthmus.from_pyg(data)) == f"Graph(pyg: 120 nodes, {graph.num_edges:,} edges, 10 features, 4 classes)"
    one, other = (isthmus.train(source, workers=1, **QUICK) for source in (data, isthmus.from_pyg(data)))
    assert losses(one.run) == losses(other.run)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_model_of_ones_own(tmp_path, workers_are_threads, workers):
    book = cut(community_graph(), workers, "random", tmp_path)
    by_name = isthmus.train(book, model="own_models:Plain", **QUICK, out="by-name")
    from own_models import Plain

    by_class = isthmus.train(book, model=Plain, **QUICK)
    assert losses(by_name.run) == losses(by_class.run)
    assert by_class.summary["model"]["model"] == "own_models:Plain"
    assert by_class.predict("nodes.npy", what="class")["rows"] == 120


def test_a_loss_and_a_metric_of_ones_own(tmp_path):
    """Given as functions, on parts that differ in their classes; workers find the file in the folder of the command."""
    shutil.copy(own_losses.__file__, tmp_path)
    own = {"loss": own_losses.weighed, "metric": own_losses.share_right, "dtype": "float64", **QUICK}
    alone, together = (isthmus.train(cut(community_graph(), n, "blocks", tmp_path), **own) for n in (1, 2))
    np.testing.assert_allclose(losses(together.run), losses(alone.run), rtol=0, atol=1e-10)
    assert together.metric == "own_losses:share_right"
    assert together.scores == alone.scores


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"hiden": 8}, "no option 'hiden': it knows recipe, set, .*model, layers, hidden"),
        ({"recipe": "magic"}, "use one of exact, vanilla"),
        ({"set": {"share": 0.1}}, "no option 'share'"),
        ({"set": ["rate"]}, "name=value"),
        ({"model": "mlp"}, "gcn, sage, gat, or your own as package.module:NAME"),
        ({"optimizer": "lion"}, "unknown optimizer 'lion': use one of .*adam, .*sgd"),
        ({"workers": 5}, "2 parts but 5 workers"),
        ({"threads": 0}, "threads must be at least 1"),
        ({"method": "ldg"}, "is already cut"),
        ({"resume": True, "out": "nothing"}, "no run to resume"),
        ({"model": "no_such_module:Net"}, "cannot import the model no_such_module:Net"),
        ({"model": "own_models:Nothing"}, "no such model as own_models:Nothing"),
        ({"model": "own_models:NOT_A_MODEL"}, "is no class or function"),
        ({"model": "own_models:sequence", "hidden": 64}, "made a list: it must return an nn.Module"),
        ({"model": "own_models:Plain", "layers": 3}, "takes no layers"),
        ({"model": torch.nn.Linear(2, 2)}, "Linear cannot be sent to workers as model: give the class.*isthmus.Worker"),
        ({"loss": lambda logits, y: 0}, "workers cannot import.*%%writefile models.py.*isthmus.Worker"),
        ({"metric": 3}, "int cannot be sent to workers as metric: give a function of .logits, y."),
        ({"model": lambda features, classes: None}, "workers cannot import.*%%writefile models.py.*isthmus.Worker"),
    ],
)
def test_refusals(tmp_path, workers_are_threads, options, words):
    book = cut(community_graph(), 2, "random", tmp_path)
    with pytest.raises(InputError, match=words):
        isthmus.train(book, **{**QUICK, **options})


def test_what_main_defines_cannot_be_imported():
    net = type("Net", (torch.nn.Module,), {"__module__": "__main__"})
    with pytest.raises(InputError, match="Net is defined where workers cannot import it"):
        importable(net)


def test_an_option_that_a_model_takes_reaches_it():
    model = ModelConfig(model="own_models:Plain", hidden=5).build(10, 4, seed=0, dtype=torch.float64)
    assert model.first.weight.shape == (5, 10)
    assert model.first.weight.dtype == torch.float64


SESSION = """
import isthmus
result = isthmus.train({parts!r}, hidden=8, steps=6, eval_every=2, quiet=True, out="run")
print(f"workers: {{result.summary['workers']}}\\n", end="")  # in one piece: workers under torchrun share the output
"""


def test_an_interactive_session(tmp_path):
    """As in a notebook, there is no file that workers could run again."""
    book = cut(community_graph(), 2, "random", tmp_path)
    session = SESSION.format(parts=str(book.folder))
    done = subprocess.run([sys.executable, "-i"], input=session, capture_output=True, text=True, timeout=120)
    assert "workers: 2" in done.stdout, done.stderr


def test_importing_isthmus_is_quick():
    """Nothing heavy is loaded before it is used, and what is not there is an ordinary error."""
    check = "import isthmus, sys; print('torch' in sys.modules, 'train' in dir(isthmus), hasattr(isthmus, 'trian'))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["False", "True", "False"]
    assert callable(isthmus.partition)
    assert all(hasattr(isthmus, name) for name in isthmus.__all__)
    assert next(iter(inspect.signature(isthmus.partition).parameters)) == "source"


def test_under_torchrun_every_worker_has_the_result(tmp_path):
    book = cut(community_graph(), 2, "random", tmp_path)
    Path("script.py").write_text(SESSION.format(parts=str(book.folder)))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "script.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("workers: 2") == 2
