"""Graph folders, parts and runs that were damaged, or made by somebody on purpose: their checksums may fit."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, fields

import numpy as np
import pytest
from fuzz.harness import (  # noqa: F401
    ODD_JSON,
    ODD_NUMBERS,
    arrays,
    bounds,
    cases,
    scratch,
    spoil_bytes,
    spoil_file,
    spoil_json,
    survives,
    write_json,
)
from graph.small import fields as ring
from graphs import cut
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from isthmus import recipes
from isthmus.comm import Hub
from isthmus.engine import PredictConfig, TrainConfig, checkpoint, predict, train
from isthmus.engine.run_files import steps_told, workers_of
from isthmus.engine.saved_run import SavedRun
from isthmus.experiments.compare import _finished
from isthmus.files import read_as, sealed, sha256
from isthmus.graph import load, save_graph
from isthmus.nn import ModelConfig
from isthmus.partition import Book, describe, own_part
from isthmus.recipes.parse import read_options
from isthmus.report import overview, read_runs, write

SMALL = TrainConfig(model=ModelConfig(model="sage", hidden=4), steps=2, eval_every=1)


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """A graph folder, parts of it, and a run on them."""
    folder = tmp_path_factory.mktemp("fuzz")
    np.savez(folder / "ring.npz", **ring(edge_attr=np.arange(12.0), node_type=np.arange(6)))
    graph = load(folder / "ring.npz")
    save_graph(graph, folder / "graph")
    book = cut(graph, 2, "random", folder)
    book.folder.rename(folder / "parts")
    book = Book.read(folder / "parts")
    train(book, SMALL, Hub(1).transport(0), out=folder / "run")
    return folder


def other_array(draw, path) -> None:
    """Any array, or the same with an odd number in it."""
    if draw(st.integers(0, 2)):
        array = np.load(path)
        if array.size and array.dtype.kind in "iuf":
            with np.errstate(all="ignore"):
                odd = np.float64(draw(st.sampled_from(ODD_NUMBERS))).astype(array.dtype)
            array.reshape(-1)[draw(st.integers(0, array.size - 1))] = odd
    else:
        array = draw(arrays())
    np.save(path, array)


def spoil_folder(draw, folder, about, fit) -> None:
    """One file spoiled; ``fit`` makes what the json file says of it true again, now and then."""
    files = sorted(path.relative_to(folder) for path in folder.rglob("*.npy"))
    path = folder / draw(st.sampled_from(files))
    how = draw(st.sampled_from(["array", "array", "bytes", "json", "json", "file", "about"]))
    if how == "array":
        other_array(draw, path)
    elif how == "bytes":
        path.write_bytes(spoil_bytes(draw, path.read_bytes()))
    elif how == "file":
        spoil_file(draw, path)
    elif how == "about":
        spoil_file(draw, about)
        return
    else:
        content = json.loads(about.read_text())
        del content["sha256"]
        content = spoil_json(draw, content)
        content = sealed(content) if isinstance(content, dict) and draw(st.integers(0, 3)) else content
        write_json(draw, about, content)
        return
    if path.is_file() and not path.is_symlink() and draw(st.integers(0, 3)):
        content = json.loads(about.read_text())
        del content["sha256"]
        fit(content, path)
        about.write_text(json.dumps(sealed(content)))


@cases("folder")
@given(st.data())
def test_graph_folders(originals, data):
    def fit(about, path):
        about["sums"][path.stem] = sha256(path)

    with scratch(originals / "graph") as folder, survives():
        spoil_folder(data.draw, folder, folder / "graph.json", fit)
        graph = load(folder)
        graph.x[graph.indices], graph.y[graph.indices]
        np.repeat(np.arange(graph.num_nodes), graph.degree)


@cases("parts")
@given(st.data())
def test_parts(originals, data):
    def fit(book, path):
        index = int(path.parent.name.removeprefix("part-"))
        book["parts"][index]["files"][path.name] = {"bytes": path.stat().st_size, "sha256": sha256(path)}

    with scratch(originals / "parts") as folder, survives():
        spoil_folder(data.draw, folder, folder / "book.json", fit)
        book = Book.read(folder)
        Console(file=open("/dev/null", "w")).print(describe(book))  # noqa: SIM115
        assert len(book.fingerprint) == 16
        both = [book.part(k) for k in range(book.num_parts)]
        assert both[0].index == 0
        own_part(book, 0, 1)
        train(book, TrainConfig(**{**vars(SMALL), "steps": 1}), Hub(1).transport(0))


JSON = ["config.json", "summary.json", "metrics.jsonl", "worker-0.jsonl", "state.json", "checksums.json"]


def spoil_run(draw, run) -> None:
    newest = run / "checkpoints" / f"step-{checkpoint.steps(run)[-1]}"
    name = draw(st.sampled_from([*JSON, *JSON, "model.safetensors", "optimizer.safetensors", "best.safetensors"]))
    path = (newest if (newest / name).exists() else run) / name
    how = draw(st.sampled_from(["json", "json", "json", "bytes", "file"]))
    if how == "json" and path.suffix == ".jsonl":
        lines = path.read_text().splitlines()
        place = draw(st.integers(0, len(lines) - 1))
        lines[place] = json.dumps(spoil_json(draw, json.loads(lines[place])))
        path.write_text("\n".join(lines) + "\n", errors="surrogatepass")
    elif how == "json" and path.suffix == ".json":
        write_json(draw, path, spoil_json(draw, json.loads(path.read_text())))
    elif how == "file":
        spoil_file(draw, path)
    else:
        path.write_bytes(spoil_bytes(draw, path.read_bytes()))
    if name != "checksums.json" and draw(st.integers(0, 3)):
        files = [file for file in newest.iterdir() if file.name != "checksums.json" and file.is_file()]
        sums = {file.name: sha256(file) for file in files if not file.is_symlink()}
        (newest / "checksums.json").write_text(json.dumps(sums))


@cases("run")
@given(st.data())
def test_runs(originals, data):
    with scratch(originals / "run") as run:
        spoil_run(data.draw, run)
        book = Book.read(originals / "parts")
        asked = PredictConfig(str(run), str(run / "out.npy"), ("class",), trust=data.draw(st.booleans()))
        longer = TrainConfig(**{**vars(SMALL), "steps": 3})
        for use in (
            lambda: write(read_runs([run]), run / "page.html"),
            lambda: json.dumps(overview(read_runs([run]))),
            lambda: SavedRun.read(run).book(),
            lambda: predict(book, asked, Hub(1).transport(0)),
            lambda: (workers_of(run), steps_told(run), _finished(run, True)),
            lambda: train(book, longer, Hub(1).transport(0), out=run, resume=True),
        ):
            with survives():
                use()
        assert not (run / "MARK").exists()


@cases("config")
@given(st.data())
def test_configs(data):
    draw = data.draw
    name = draw(st.sampled_from(sorted(recipes.RECIPES)))
    content = asdict(TrainConfig(recipe=name, options=recipes.RECIPES[name].settings({})))
    with survives():
        config = read_as(TrainConfig, spoil_json(draw, content), "config.json", "mend it")
        recipes.find(config.recipe).policy(config.options)
    with survives():
        text = draw(st.one_of(st.text(max_size=12), st.sampled_from(["rate=NaN", "bits=1e999", "staleness=-Infinity"])))
        recipes.RECIPES[name].policy(recipes.RECIPES[name].settings(read_options([text])))
    with survives():
        given_name = draw(st.sampled_from(sorted(recipes.RECIPES[name].options) or ["none"]))
        recipes.RECIPES[name].policy({given_name: draw(ODD_JSON)})
    with survives():
        shape = {one.name: draw(ODD_JSON) for one in fields(ModelConfig) if draw(st.booleans())}
        read_as(ModelConfig, shape, "config.json", "mend it")


def test_what_is_fuzzed_works_when_it_is_whole(originals, tmp_path):
    """Else every case would be refused for a reason of no interest."""
    run = shutil.copytree(originals / "run", tmp_path / "run")
    book = Book.read(originals / "parts")
    assert load(originals / "graph").num_edges == 12
    assert predict(book, PredictConfig(str(run), str(tmp_path / "a.npy"), ("class",)), Hub(1).transport(0))["rows"] == 6
    train(book, TrainConfig(**{**vars(SMALL), "steps": 3}), Hub(1).transport(0), out=run, resume=True)
    write(read_runs([run]), tmp_path / "page.html")
