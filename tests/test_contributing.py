"""The worked examples of CONTRIBUTING.md, as they stand there."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from exactly import assert_equal_runs, config, run
from graphs import community_graph, cut

from isthmus.comm import FORWARD, SCATTER, Buffers, Channel, ChannelId, Hub, Keep, Links, Stages
from isthmus.errors import InputError
from isthmus.local import Policy, Savings
from isthmus.options import options_of
from isthmus.partition import methods, partition
from isthmus.partition import run as partition_run
from isthmus.recipes import find

PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"


def example(title: str) -> dict:
    """The names that the code under a heading defines."""
    section = PAGE.read_text().split(f"### {title}\n")[1].split("\n### ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    module = types.ModuleType("contributed")
    sys.modules["contributed"] = module  # dataclasses look there
    exec("from __future__ import annotations\n" + code, vars(module))
    return vars(module)


@pytest.fixture
def book(tmp_path):
    return cut(community_graph(), 3, "metis", tmp_path)


def test_a_recipe(book):
    """It learns nearly as exact does, and is exact without its losses; rows are shorter, gradients half as many."""
    lazy = example("A recipe")["LAZY"]
    exact, asked = find("exact").policy(), config("sage", dtype="float32")
    found, full = run(book, asked, lazy.policy()), run(book, asked, exact)
    assert abs(found[0][-1] - full[0][-1]) < 0.1 * full[0][0]
    eager = run(book, asked, lazy.policy({"bound": 0, "bits": 32}))
    assert_equal_runs(eager, full, tolerance=1e-4)
    ours, theirs = (one[2]["bytes_per_step"]["embeddings"] for one in (found, eager))
    assert ours < theirs
    sent = [one[2]["bytes_per_step"]["gradients"] for one in (found, run(book, asked, lazy.policy({"bound": 0})))]
    assert sent[0] == sent[1] / 2
    assert find("exact").name == "exact"


def test_a_codec():
    """A value is read back within a factor of the square root of two, with its sign."""
    powers = example("A codec")["PowersOfTwo"]()
    rows = torch.randn(6, 5, generator=torch.Generator().manual_seed(0)).double()

    def work(transport):
        other = 1 - transport.rank
        mine = [torch.arange(6, dtype=torch.int32) if q == other else torch.empty(0, dtype=torch.int32) for q in (0, 1)]
        links = Links(mine, [6 if q == other else 0 for q in (0, 1)])
        one = Channel(transport, Stages(encode=powers), links, ChannelId(0, FORWARD, SCATTER), 0, Buffers())
        one.post(0, rows, links, "embeddings")
        return one.take(0), transport.ledger.kinds["embeddings"]

    for got, sent in Hub(2).run(work):
        assert sent == rows.numel()  # a byte each
        assert ((got / rows).log2().abs() <= 0.5).all()


def test_a_staleness_rule():
    """A longer row stays at home, a turned one leaves, and readers hold the old one of the first."""
    turned = example("A staleness rule")["Turned"]()
    first = torch.eye(4).double()
    then = first * 3
    then[2] = then[2].roll(1)

    def work(transport):
        other = 1 - transport.rank
        mine = [torch.arange(4, dtype=torch.int32) if q == other else torch.empty(0, dtype=torch.int32) for q in (0, 1)]
        links, found = Links(mine, [4 if q == other else 0 for q in (0, 1)]), []
        one = Channel(transport, Stages(turned, merge=Keep()), links, ChannelId(0, FORWARD, SCATTER), 0, Buffers())
        for step, rows in enumerate((first, then)):
            one.post(step, rows, links, "embeddings")
            found.append(one.take(step).clone())
        return found

    for before, after in Hub(2).run(work):
        assert torch.equal(before, first)
        assert torch.equal(after, torch.where(torch.arange(4)[:, None] == 2, then, first))


def test_a_sampler(book):
    """Two steps together read every row once, counted twice; training with it runs."""
    sampler = example("A sampler")["Alternate"]()
    policy = Policy(Savings(), sampler=sampler)
    losses = run(book, config("gcn", dtype="float64"), policy)[0]
    assert losses[-1] < losses[0]


def test_a_partitioner(tmp_path, monkeypatch):
    for module in (methods, partition_run):
        monkeypatch.setattr(module, "METHODS", {**methods.METHODS, "deal": example("A partitioner")["DEAL"]})
    book = partition(community_graph(), 4, "deal", out=tmp_path / "parts", order="given")
    for k in range(4):
        assert np.array_equal(book.part(k).nodes % 4, np.full(book.parts[k].inner, k))


def test_a_model(book):
    """The same on three workers as on one."""
    make, losses = example("A model")["Residual"], []
    first = make(book.features, book.classes).double().state_dict()
    for parts in (book, cut(community_graph(), 1, "metis", book.folder.parent / "alone")):
        model = make(parts.features, parts.classes)
        model.load_state_dict(first)
        losses.append(run(parts, config("gcn"), model=model.double())[0])
    torch.testing.assert_close(*losses, rtol=1e-10, atol=0)


def test_an_option():
    """It is checked, has a flag, and reaches the table of the docs like any other."""
    warm = example("An option")["WarmUp"]
    flags = {one.flag: one.help for one in options_of(warm)}
    assert flags == {"--warmup": "Steps until lr is reached.", "--shape": "linear or cosine."}
    with pytest.raises(InputError, match="warmup must be at least 0, not -1"):
        warm(warmup=-1)
    with pytest.raises(InputError, match="unknown shape 'x': use one of linear, cosine"):
        warm(shape="x")
