"""The papers' tables (benchmarks/papers): what they declare can be run; figures are related and shown as they say."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from papers import again, link, measure, page
from papers.__main__ import PAPERS, chosen
from papers.beds import BEDS, SIZES
from papers.run import Results, needed
from papers.table import QUANTITIES, THIRDS, Cell, Column, Paper, Row, Table, cell, relate

from isthmus.errors import InputError
from isthmus.graph.presets import PRESETS
from isthmus.recipes.parse import read_entries
from isthmus.testbed import bits_per_second

TABLES = [table for paper in PAPERS.values() for table in paper.tables]
SMALL = Table(
    "Table 0",
    "about it",
    "full",
    ("reddit",),
    (Column("step", "step", "speed-up"), Column("score", "score", "points"), Column("waiting", "wait_share")),
    (
        Row("full", "vanilla", {"reddit": (1.6, 97.0, 67.0)}),
        Row("half", "bns", {"reddit": (0.8, 96.5, None)}),
        Row("elsewhere", None, {"reddit": (0.4, 97.5, None)}),
    ),
    "because\nof this\n\nand that",
)
MEASURED = {
    ("reddit", "metis", "vanilla"): {"step": 0.6, "score": 90.0, "wait_share": 75.0},
    ("reddit", "metis", "bns"): {"step": 0.2, "score": 89.75},
}


def _names(table: Table) -> list[str]:
    return [row.name for row in table.rows]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_row_can_be_run(table):
    """Recipes exist and know the options; graphs, bases and quantities are there; nothing is listed twice."""
    for row in table.rows:
        if row.entry is not None:
            (entry,) = read_entries(row.entry)
            assert entry.label == row.entry, "measured figures are found by the label"
        assert table.base_of(row, table.columns[0]).entry is not None
    assert len(set(_names(table))) == len(table.rows)
    assert {column.quantity for column in table.columns} <= set(QUANTITIES)
    assert {column.base for column in table.columns} <= {None, *_names(table)}
    assert set(table.graphs) <= set(BEDS)
    assert len(table.why.split()) > 20


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_published_figure_has_a_place(table):
    published = 0
    for row in table.rows:
        assert set(row.published) <= set(table.graphs)
        for figures in row.published.values():
            assert len(figures) == len(table.columns)
            published += sum(figure is not None for figure in figures)
            ranges = [c for c, figure in zip(table.columns, figures, strict=True) if isinstance(figure, tuple)]
            assert all(column.published_ratio for column in ranges), "a range has no ratio to a base"
    assert published


def test_all_tables_that_were_promised():
    names = {(name, table.name.split(",")[0]) for name, paper in PAPERS.items() for table in paper.tables}
    assert names >= {("psc", "Table II"), ("psc", "Table III"), ("psc", "Fig. 8"), ("pipegcn", "Table 4")}
    assert names >= {
        ("bns", "Table 4"),
        ("bns", "Table 8"),
        ("bns", "Table 9"),
        ("bns", "Fig. 5"),
        ("sancus", "Fig. 21"),
        ("cdfgnn", "Table 3"),
        ("cdfgnn", "Fig. 5"),
        ("cdfgnn", "Fig. 6"),
        ("cdfgnn", "Fig. 7"),
    }


def test_published_ratios_of_psc_gcn():
    """By its own table III: 2.60× at ε = 0.1, and the promised 6.3× at ε = 0.01."""
    table = next(table for table in TABLES if table.name == "Table III")
    step = table.columns[0]
    ratios = [
        cell(table, table.row(f"PSC-GCN (τ = 2, ε = {e})"), step, "reddit", {}).published for e in ("0.1", "0.01")
    ]
    assert ratios == pytest.approx([2.601, 6.336], abs=1e-3)


def test_beds_are_presets():
    assert {bed.graph for bed in BEDS.values()} <= set(PRESETS)
    for bed in BEDS.values():
        assert list(bed.scales) == sorted(bed.scales)
    for size in SIZES.values():
        assert (size.linked_steps - 1) % 4 == 0
    assert (SIZES["minutes"].linked_steps - 1) % 12 == 0, "whole periods of SANCUS's bounds 1, 2 and 3"


def test_relations():
    assert relate("speed-up", 0.5, 2.0) == 4
    assert relate("share", 0.5, 2.0) == 0.25
    assert relate("points", 96.0, 97.5) == -1.5
    assert relate("plain", 3.0, None) == 3
    assert relate("speed-up", 0.0, 2.0) is None
    assert relate("share", 0.5, None) is None
    assert relate("points", None, 1.0) is None


def test_cells_relate_ours_and_theirs_alike():
    full, half, elsewhere = SMALL.rows
    step, score, waiting = SMALL.columns
    assert cell(SMALL, half, step, "reddit", MEASURED) == Cell(0.2, pytest.approx(3), 2)
    assert cell(SMALL, half, score, "reddit", MEASURED) == Cell(89.75, -0.25, -0.5)
    assert cell(SMALL, full, waiting, "reddit", MEASURED) == Cell(75, 75, 67)
    assert cell(SMALL, elsewhere, step, "reddit", MEASURED) == Cell(None, None, 4)
    ratio = replace(SMALL, columns=(replace(step, published_ratio=True), score, waiting))
    assert cell(ratio, half, ratio.columns[0], "reddit", MEASURED).published == 0.8


def test_a_row_and_a_column_can_have_a_base_of_their_own():
    rows = (Row("a", "vanilla"), Row("b", "vanilla", cut="random", base="b"), Row("c", "bns", cut="random", base="b"))
    columns = Column("step", "step", "speed-up"), Column("halo", "halo", "share", base="a")
    table = replace(SMALL, base="a", columns=columns, rows=rows)
    measured = {
        ("reddit", "metis", "vanilla"): {"step": 1.0, "halo": 10.0},
        ("reddit", "random", "vanilla"): {"step": 6.0, "halo": 30.0},
        ("reddit", "random", "bns"): {"step": 2.0, "halo": 30.0},
    }
    assert [cell(table, rows[2], column, "reddit", measured).ours for column in columns] == [3, 3]


@pytest.mark.parametrize(
    ("found", "relation", "apart"),
    [
        (Cell(1, 2.0, 2.4), "speed-up", False),
        (Cell(1, 2.0, 3.0), "speed-up", True),
        (Cell(1, 2.0, (2.1, 3.0)), "speed-up", False),
        (Cell(1, -0.4, 0.0), "points", False),
        (Cell(1, -0.6, 0.0), "points", True),
        (Cell(1, 9.0, None), "speed-up", False),
        (Cell(None, None, 9.0), "share", False),
    ],
)
def test_far_apart(found, relation, apart):
    assert found.apart(relation) is apart


def test_the_link_makes_transfer_three_times_computing():
    assert link.transfer_for(0.2) == pytest.approx(0.6)
    rate = link.rate_for(30e6, 0.2)  # 30 MB in 0.6 s
    assert 8 * 30e6 / (rate * link.LOADED) == pytest.approx(0.6, rel=1e-3)
    assert link.rate_for(1e15, 1e-3) == bits_per_second("100gbit")


def test_the_link_is_fitted_to_what_was_seen():
    """Half of a step waiting means M = C; three quarters need M = 3 C, so a third of the rate."""
    half = link.Tried(3e8, 2.0, 0.5)
    assert link.fitted([half]) == pytest.approx(1e8)
    assert link.fitted([half, link.Tried(1e8, 4.0, 0.75)]) == pytest.approx(1e8)
    noisy = half, link.Tried(3e8, 2.1, 0.5), link.Tried(3e8, 9.0, 0.9), link.Tried(3e8, 1.9, 0.5), half
    assert link.fitted(noisy) == pytest.approx(1e8), "one that was disturbed does not count"


def test_the_busiest_link():
    """Worker 0 sends 10 and 30 to worker 1 in two steps; both take part in sums of 4 bytes."""
    mine = [[[0, "forward", 1, 2, 10], ["weights", "reduce", -1, 0, 4]], [[0, "forward", 1, 2, 30]]]
    other = [[["weights", "reduce", -1, 0, 4]], []]
    assert measure.busiest([mine, other]) == 20 + 2


def test_entries_take_turns_until_they_agree(monkeypatch, tmp_path):
    """Each is as fast as its two fastest turns; who failed has no second one, and who never agrees has its fastest."""
    steps = {"vanilla": [1.0, 1.02], "bns": [0.5, 0.4, 0.3, 0.31], "exact": [], "psc-gcn": [9.0, 8.0, 7.0, 5.0, 6.0]}
    asked = []

    def linked(setting, entries, rate, folder, tell):
        asked.append([entry.label for entry in entries])
        found = {entry.label: steps[entry.label].pop(0) for entry in entries if steps[entry.label]}
        return {label: {"step": step, "wait": step / 2} for label, step in found.items()}

    monkeypatch.setattr(measure, "linked", linked)
    found = measure.fastest(None, read_entries("vanilla; bns; exact; psc-gcn"), 1e8, tmp_path, print)
    assert {label: figures["step"] for label, figures in found.items()} == {"vanilla": 1.01, "bns": 0.305, "psc-gcn": 5}
    assert all(figures["wait"] == figures["step"] / 2 for figures in found.values())
    first, second, *others = asked
    assert first == ["vanilla", "bns", "exact", "psc-gcn"]
    assert second == ["vanilla", "bns", "psc-gcn"]
    assert others == [["bns", "psc-gcn"], ["bns", "psc-gcn"], ["psc-gcn"]]


def test_thirds_of_a_training():
    """A cache's threshold and shares; a channel that says nothing at a step does not count there."""
    lines = [{"epsilon": step, **({"1 forward gather": 0.5} if step else {})} for step in range(6)]
    found = measure.thirds(lines)
    assert [found[f"epsilon, {part} third"] for part in THIRDS] == [0.5, 2.5, 4.5]
    assert found["1 forward gather, first third"] == 0.5
    assert measure.thirds([]) == {}


def test_an_entry_can_have_several_rows():
    columns = tuple(Column(f"{part} third", f"{part} third") for part in THIRDS)
    rows = Row("ε", "cdfgnn", of="epsilon, "), Row("sent", "cdfgnn", of="1 forward gather, ")
    table = replace(SMALL, base="ε", columns=columns, rows=rows)
    measured = {("reddit", "metis", "cdfgnn"): {"epsilon, last third": 0.2, "1 forward gather, last third": 0.7}}
    assert [cell(table, row, columns[-1], "reddit", measured).ours for row in rows] == [0.2, 0.7]


def test_steps_to_converge():
    base = [(5, 0.5), (10, 1.0), (15, 0.8)]
    assert measure.steps_to(base, base) == 10
    assert measure.steps_to([(5, 0.98), (10, 0.99)], base) == 10
    assert measure.steps_to([(5, 0.98)], base) is None


def test_runs_are_done_once_and_vanilla_first():
    runs = needed(PAPERS.values(), SIZES["minutes"])
    for cuts in runs.values():
        for cut, sources in cuts.items():
            for source, entries in sources.items():
                assert len(set(entries)) == len(entries)
                assert source == "cut" or entries[0] == "vanilla" or measure.is_vertex_cut(cut)
    assert {cut for cut, sources in runs["reddit"].items() if set(sources) != {"cut"}} == {"metis", "random"}
    assert list(needed([PAPERS["psc"]], SIZES["quick"])) == ["reddit"]


def test_choosing_tables():
    (paper,) = chosen("psc", "Table II, Table III")
    assert [table.name for table in paper.tables] == ["Table II", "Table III"]
    assert len(chosen(None, None)) == len(PAPERS)
    with pytest.raises(InputError, match="--only takes psc"):
        chosen("dgl", None)
    with pytest.raises(InputError, match="no table 'Table IX'"):
        chosen("bns", "Table IX")


def test_a_table_in_markdown():
    results = Results(SIZES["quick"], dict(MEASURED))
    assert page.markdown_table(SMALL, "reddit", results).splitlines() == [
        "| method | step | speed-up over full | published | score | points from full | published "
        "| waiting | published |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| **full** | 600.0 ms | 1.00× | 1.00× | 90.00 % | +0.00 | +0.00 | 75.00 % | 67.00 % |",
        "| half | 200.0 ms | 3.00× | 2.00× | 89.75 % | -0.25 | -0.50 | – | – |",
        "| elsewhere | – | – | 4.00× | – | – | +0.50 | – | – |",
    ]
    assert page.differences(SMALL, "reddit", results).endswith("half (step: 3.00×, published 2.00×).")


def test_a_page_and_its_numbers(tmp_path):
    results = Results(SIZES["quick"], dict(MEASURED), failed=["reddit: bns: it broke"])
    paper = Paper("small", "Small", "two abacuses", (SMALL,))
    path = page.write(paper, results, "python -m papers --quick", tmp_path)
    text, numbers = path.read_text(), json.loads(path.with_suffix(".json").read_text())
    assert path.name == "small-quick.md"
    assert "two abacuses" in text
    assert "**Why they differ.** because of this\n\nand that" in text
    assert "- reddit: bns: it broke" in text
    assert numbers["tables"][0]["rows"]["half"]["step"] == {"measured": 0.2, "ours": pytest.approx(3), "published": 2}
    assert {"graph": "reddit", "cut": "metis", "entry": "bns", "step": 0.2, "score": 89.75} in numbers["runs"]


def test_two_runs_agree(tmp_path):
    """Ratios up to 15 % apart agree; methods change places only if one was ahead by more than that."""
    paper = Paper("small", "Small", "two abacuses", (SMALL,))
    page.write(paper, Results(SIZES["minutes"], dict(MEASURED)), "python -m papers", tmp_path)
    one = again.ratios(paper, tmp_path)
    assert one == {"reddit, Table 0, step": {"half": pytest.approx(3)}}, "neither points, nor shares of waiting"
    assert again.agreement(one, one) == (1, [], [])

    def of(**ratios: float) -> again.Ratios:
        return {"step": ratios}

    assert again.agreement(of(a=2.0, b=2.1), of(a=2.2, b=2.0)) == (2, [], []), "as good as equal both times"
    found = again.agreement(of(a=2.0, b=3.0, c=1.0), of(a=2.0, b=1.9))
    assert found.ratios == 2
    assert found.apart == ["step, b: 3.00 and 1.90"]
    assert found.swapped == ["step: a was 0.67 × b, then 1.05 ×"]
