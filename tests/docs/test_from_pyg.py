"""Every row of docs/from-pyg.md is run: models as they are, lines of a loop, options of the command."""

from __future__ import annotations

import copy
import re
import shlex
import sys

import pytest
import torch
from docs.pages import ROOT
from graphs import community_graph, cut, npz
from runs import as_threads
from torch import nn
from torch.nn import functional

import isthmus
from isthmus import cli
from isthmus.comm import Hub
from isthmus.engine import TrainConfig, train
from isthmus.launch import local

pyg = pytest.importorskip("torch_geometric.nn", reason="PyG is not installed: pip install 'isthmus[pyg]'")


def rows(section: str) -> list[tuple[str, str]]:
    """The rows of a section's table: what a script has, what one writes."""
    text = (ROOT / "docs" / "from-pyg.md").read_text().partition(f"## {section}\n")[2].partition("\n## ")[0]
    cells = [line.strip("|\n ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [(cell[0].removesuffix(", with `edge_attr`").strip("`"), cell[-1].strip("`")) for cell in cells[1:]]


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    return cut(community_graph(), 2, "random", tmp_path_factory.mktemp("parts"))


@pytest.mark.parametrize(("has", "writes"), rows("The model"))
def test_models_as_they_are(book, has, writes):
    assert writes == "as it is"
    torch.manual_seed(0)
    model = eval(has, {"pyg": pyg, "nn": nn})  # the page is ours
    config = TrainConfig(steps=2, eval_every=2, edge_weights="none")

    def work(transport):
        lines = []
        train(book, config, transport, model=copy.deepcopy(model), watch=lambda line: lines.append(line["loss"]))
        return lines

    first, second = Hub(2).run(work)
    assert len(first) == 2
    assert first == second


def test_lines_of_a_loop(book, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [writes for _, writes in rows("In a model or a loop")]
    assert len(lines) >= 10

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = nn.Linear(10, 4)

        def forward(self, graph, x):
            return self.last(graph.aggregate(x))

    def work(transport):
        with isthmus.Worker(book, transport=transport) as worker:
            model = Net()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
            worker.prepare(model, optimizer)
            done = 0
            for line in lines:
                optimizer.zero_grad()
                out, y = model(worker.graph, worker.x)[worker.train_mask], worker.y[worker.train_mask]
                names = {
                    "worker": worker, "graph": worker.graph, "x": worker.x, "model": model, "optimizer": optimizer,
                    "scheduler": scheduler, "F": functional, "nn": nn, "out": out, "y": y, "w": torch.ones(4),
                    "batch": worker.graph.nodes % 3, "loss": functional.cross_entropy(out, y),
                }  # fmt: skip
                exec(line, names)
                worker.graph.runtime.begin(worker.steps)
                done += 1
            return done

    assert Hub(2).run(work) == [len(lines)] * 2


@pytest.mark.parametrize(("has", "writes"), rows("Options"))
def test_options(book, tmp_path, monkeypatch, has, writes):
    assert has
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(local, "start", as_threads)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    cuts = re.search(r"--(undirected|multi-edges)", writes)
    source = str(npz(tmp_path / "mine.npz")) if cuts else str(book.folder)

    def command(*words):
        monkeypatch.setattr(sys, "argv", ["isthmus", "train", source, "--steps", "2", "--quiet", *words])
        with pytest.raises(SystemExit) as end:
            cli.main()
        return end.value.code or 0

    if "--init" in writes:
        assert command("--out", "run") == 0
    assert command(*shlex.split(writes)) == 0
