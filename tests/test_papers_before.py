"""Papers' tables that were made before (benchmarks/papers): what a later run takes from them, and adds to them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from papers import measure, page
from papers.beds import BEDS, SIZES
from papers.run import Bench, Results, needed
from papers.table import Column, Paper, Row, Table

from isthmus.errors import InputError

SMALL = Table(
    "Table 0",
    "about it",
    "full",
    ("reddit",),
    (Column("step", "step", "speed-up"), Column("score", "score", "points"), Column("waiting", "wait_share")),
    (Row("full", "vanilla", {}), Row("half", "bns", {}), Row("elsewhere", None, {})),
    "because",
)


def test_links_of_an_earlier_run_on_this_machine_are_taken_again(tmp_path):
    paper, size = Paper("small", "Small", "paper", (SMALL,)), SIZES["minutes"]
    assert page.links_before(tmp_path, [paper], size.name) == {}
    found = Results(size, links={"reddit": measure.Narrow(4e8, 0.1, 0.4, 0.75, 2e7)})
    path = page.write(paper, found, "it", tmp_path).with_suffix(".json")
    assert page.links_before(tmp_path, [paper], size.name) == {"reddit": 4e8}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"machine": "another"}))
    assert page.links_before(tmp_path, [paper], size.name) == {}


def test_a_known_link_is_tried_once(monkeypatch, tmp_path):
    rates = []

    def linked(setting, entries, rate, folder, tell):
        rates.append(rate)
        return {"vanilla": {"step": 0.4, "wait_share": 75.0, "busiest": 1e7}}

    monkeypatch.setattr(measure, "linked", linked)
    assert measure.calibrate(None, tmp_path, lambda _: None, 3e8).rate == 3e8
    assert rates == [None, 3e8]
    measure.calibrate(None, tmp_path, lambda _: None)
    assert len(rates) == 2 + 1 + measure.TRIES


def test_scores_of_an_earlier_run_are_not_learnt_again(tmp_path, monkeypatch):
    """They, the bytes and the steps to converge are taken from its numbers; times are those of this run."""
    paper, size = Paper("small", "Small", "paper", (SMALL,)), SIZES["minutes"]
    key = ("reddit", "metis", "bns")
    before = Results(size, {key: {"step": 0.2, "score": 89.75, "sent": 7.0, "converge": 4.8}})
    page.write(paper, before, "it", tmp_path)
    known = page.learnt_before(tmp_path, [paper], size.name)
    assert known[key] == pytest.approx({"score": 89.75, "sent": 7.0, "steps": 24})
    monkeypatch.setattr(measure, "learn", lambda *_: pytest.fail("it was learnt again"))
    figures = {"bns": {"step": 0.25}}
    Bench(size, tmp_path, print, known).learn(
        BEDS["reddit"], SimpleNamespace(folder=Path("metis"), name="small"), ["bns"], figures, Results(size)
    )
    assert figures["bns"] == pytest.approx({"step": 0.25, "score": 89.75, "sent": 7.0, "converge": 6.0})


def test_rows_are_added_to_a_page_in_its_own_unit(tmp_path, monkeypatch):
    """Only what the page lacks is run, beside `vanilla`; times of a slower hour are told in those of the page."""
    paper, size = Paper("small", "Small", "paper", (SMALL,)), SIZES["minutes"]
    old = {("reddit", "metis", "vanilla"): {"step": 0.6, "score": 90.0, "wait_share": 75.0}}
    page.write(paper, Results(size, old, links={"reddit": measure.Narrow(4e8, 0.1, 0.6, 0.75, 2e7)}), "it", tmp_path)
    before = page.figures_before(tmp_path, [paper], size.name)
    assert before.figures == old
    bench, ran = Bench(size, tmp_path, print, before=before), []
    assert bench.left(needed([paper], size), [paper]) == {
        "reddit": {"metis": {"linked": ["vanilla", "bns"], "learnt": ["vanilla", "bns"]}}
    }

    def fastest(setting, entries, rate, *_):
        ran.append((rate, [entry.label for entry in entries]))
        return {"vanilla": {"step": 1.2}, "bns": {"step": 0.5, "wait_share": 20.0}}

    monkeypatch.setattr(measure, "fastest", fastest)
    monkeypatch.setattr(
        measure, "parts", lambda *_: SimpleNamespace(folder=tmp_path / "metis", name="g", nodes=1, edges=2)
    )
    monkeypatch.setattr(measure, "of_cut", lambda _: {})
    monkeypatch.setattr(measure, "learn", lambda _, entry, __: measure.Learnt({"score": 89.0}, [(4, 0.9)]))
    found = bench.run([paper])
    assert ran == [(4e8, ["vanilla", "bns"])]
    vanilla, bns = (found.figures["reddit", "metis", entry] for entry in ("vanilla", "bns"))
    assert (vanilla["step"], bns["step"], bns["wait_share"], bns["converge"]) == pytest.approx((0.6, 0.25, 20.0, 1.0))


def test_rows_are_not_added_to_the_page_of_another_machine(tmp_path):
    paper = Paper("small", "Small", "paper", (SMALL,))
    with pytest.raises(InputError, match="no page: --add takes a page that was made on"):
        page.figures_before(tmp_path, [paper], "minutes")
