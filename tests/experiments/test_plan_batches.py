"""The plan of mini-batches against what runs count. No time is asserted."""

from __future__ import annotations

import json

import pytest
from graphs import community_graph, cut

from isthmus import cli
from isthmus.comm import Hub
from isthmus.comm.hosts import in_blocks
from isthmus.engine import TrainConfig, train
from isthmus.errors import InputError
from isthmus.experiments.plan import PlanRequest, plan
from isthmus.launch import local
from isthmus.launch.gauge import Gauge
from isthmus.nn import ModelConfig
from isthmus.recipes import find
from isthmus.recipes.parse import read_entries

STEPS = 4


@pytest.fixture
def quick(monkeypatch):
    """A gauge without processes."""
    found = Gauge(1e-4, 1e-5, 1e-10, 1e-5, 1e-10, 1e9, 2**20)
    monkeypatch.setattr(local, "start", lambda job, workers: vars(found))


def asked(**changes):
    shape = ModelConfig("sage", 2, 8)
    return TrainConfig(model=shape, **{"batch_size": 25, "fanout": "4,3", "steps": STEPS, "eval_every": 99, **changes})


def planned(book, label, config, **where):
    entries = read_entries(label)
    return plan(PlanRequest(entries, config, **{"link": "1gbit", "steps": STEPS - 1, **where}), book).batches


@pytest.mark.parametrize(
    ("label", "hosts"),
    [
        ("distdgl", 3),
        ("distdgl bits=16", 3),
        ("distdgl precision=bf16", 3),
        ("distdgl cache_rows=0.2", 3),
        ("distdgl", 2),
    ],
)
def test_rows_and_bytes_are_those_of_a_run(tmp_path, quick, label, hosts):
    """Of steps 1 to 3; a run has those of step 0 as well, and what its set-up sends, which are few."""
    book = cut(community_graph(nodes=300, degree=8), 3, "random", tmp_path)
    (entry,) = read_entries(label)
    (one,) = planned(book, label, asked(), hosts=hosts)
    counted = []

    def work(transport):
        transport.hosts = in_blocks(3, hosts)
        policy, lines = find(entry.recipe).policy(entry.options), []
        transport.ledger.take()
        train(book, asked(), transport, policy=policy, watch=lambda line: lines.append(line["bytes"]))
        return lines

    counted = Hub(3).run(work)
    real = sum(sum(lines[1:]) for lines in counted) / (STEPS - 1)
    assert sum(one.bytes_per_step.values()) == pytest.approx(real, rel=0.01)
    assert sum(one.rows.values()) == pytest.approx(2 * one.rows["read"])
    assert (one.rows["cached"] > 0) == ("cache" in label)
    assert (one.rows["from_files"] > 0) == (hosts == 2)


def test_a_larger_graph_of_the_kind(tmp_path, quick):
    book = cut(community_graph(nodes=300, degree=8), 4, "metis", tmp_path)
    one, many = (planned(book, "distdgl", asked(), workers=2, scale=scale)[0] for scale in (1, 100))
    assert (one.rows, one.bytes_per_step) == (many.rows, many.bytes_per_step)
    assert many.files_per_machine == 100 * one.files_per_machine
    assert many.memory_per_worker - one.memory_per_worker == pytest.approx(
        99 * (book.edges * 4 + book.nodes * 20 + 8), rel=0.1
    )
    with pytest.raises(InputError, match="needs"):
        planned(book, "distdgl", asked(), scale=1e9, memory="1GiB")


@pytest.mark.parametrize(
    ("label", "changes", "message"),
    [
        ("distdgl", {"batch": "together"}, "batches apart"),
        ("distdgl", {"structure": "owner"}, "--structure owner"),
        ("distdgl cache=list cache_rows=0.1", {}, "cache=vip"),
    ],
)
def test_what_is_not_planned(tmp_path, quick, label, changes, message):
    with pytest.raises(InputError, match=message):
        planned(cut(community_graph(), 2, "random", tmp_path), label, asked(**changes))


def test_the_command(tmp_path, quick, monkeypatch, capsys):
    book = cut(community_graph(), 2, "random", tmp_path)

    def said(*words):
        monkeypatch.setattr("sys.argv", ["isthmus", "plan", str(book.folder), "--recipes", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code, capsys.readouterr()

    few = ("--model", "sage", "--layers", "2", "--hidden", "4", "--fanout", "3,2", "--steps", "1", "--quiet")
    status, told = said("distdgl", *few, "--json")
    assert status in (0, None)
    assert json.loads(told.out.splitlines()[-1])["batches"][0]["rows"]["read"] > 0
    status, told = said("distdgl, distdgl bits=8", *few)
    assert "features per machine" in told.out
    assert said("distdgl, exact", *few)[0] == 2
    assert "mini-batch recipes" in said("exact", *few)[1].err
