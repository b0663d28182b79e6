"""A comparison in numbers and on its page, from runs made by hand: four steps, validation 0.5 and then 0.75."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import pytest
from report.folders import comparison_folder, write
from report.test_page import HOSTILE, Outline

from isthmus.errors import InputError
from isthmus.report import read_comparison, write_comparison
from isthmus.report.comparison_page import comparison_page, times, to_target
from isthmus.report.contender import Spread
from isthmus.report.text import score
from isthmus.report.whiskers import Mark, plus_minus, whisker_chart

THREE = {"bns rate=0.5": [0.25, 0.5], "vanilla": [1.0, 1.0], "pipegcn": [0.5, "worker 1 died"]}


@pytest.fixture
def comparison(tmp_path):
    return read_comparison(comparison_folder(tmp_path / "c", THREE, link="1gbit"))


def of(comparison, label):
    return next(one for one in comparison.contenders if one.label == label)


def test_speed_ups_are_made_seed_by_seed(comparison):
    assert comparison.base.label == "vanilla"
    assert comparison.speed_up(of(comparison, "bns rate=0.5")).values == (4.0, 2.0)
    assert comparison.speed_up(of(comparison, "pipegcn")).values == (2.0,)
    assert comparison.speed_up(comparison.base).values == (1.0, 1.0)


def test_time_to_the_target(comparison):
    """The default is 99 % of vanilla's 0.75: everyone reaches it with the fourth step."""
    assert comparison.target == pytest.approx(0.7425)
    assert comparison.seconds_to_target(comparison.base) == {0: 4.0, 1: 4.0}
    assert comparison.seconds_to_target(of(comparison, "bns rate=0.5")) == {0: 1.0, 1: 2.0}
    assert comparison.speed_up_to_target(of(comparison, "bns rate=0.5")).mean == 3.0


def test_another_target(comparison):
    lower, higher = (read_comparison(comparison.folder, target) for target in (0.4, 0.8))
    assert lower.seconds_to_target(lower.base) == {0: 2.0, 1: 2.0}
    assert to_target(higher, higher.base) == "not reached"
    assert higher.speed_up_to_target(higher.base) is None
    assert "no run has reached it" in comparison_page(higher)


def test_some_seeds_reach_the_target(comparison):
    metrics = comparison.folder / "vanilla/seed-1/metrics.jsonl"
    metrics.write_text(metrics.read_text().replace('"val": 0.75', '"val": 0.6'))
    again = read_comparison(comparison.folder, 0.7)
    assert to_target(again, again.base) == "4.00 s (1 of 2)"
    assert "Not reached by every seed: vanilla." in comparison_page(again)


def test_the_base_without_vanilla(tmp_path):
    folder = comparison_folder(tmp_path / "c", {"exact": [1.0], "bns": [0.5]})
    assert read_comparison(folder).base.label == "exact"
    coded = comparison_folder(tmp_path / "d", {"vanilla bits=8": [1.0], "vanilla": [0.5]})
    assert read_comparison(coded).base.label == "vanilla"


def test_without_validation_nodes_the_test_score_is_judged(tmp_path):
    folder = comparison_folder(tmp_path / "c", {"vanilla": [1.0]})
    metrics = folder / "vanilla/seed-0/metrics.jsonl"
    metrics.write_text(re.sub(r'"val": [0-9.]+', '"val": null', metrics.read_text()))
    found = read_comparison(folder)
    assert found.split == "test"
    assert found.target == pytest.approx(0.99 * 0.65)


def test_as_json(comparison):
    told = json.loads(json.dumps(comparison.as_dict()))
    bns, vanilla, pipe = told["recipes"]
    assert bns["speed_up"] == {"mean": 3.0, "std": pytest.approx(2**0.5), "values": [4.0, 2.0]}
    assert pipe["failed"] == {"1": "worker 1 died"}
    assert pipe["speed_up"]["std"] is None
    assert vanilla["bytes_per_step"]["embeddings"] == 2048
    assert vanilla["step_split"] == {"compute": 0.5, "wait": 0.25, "sample": 0.0, "reduce": 0.25}
    assert vanilla["wire"] == {"payload_bytes": 2020, "counted_bytes": 2000}


def outline(comparison) -> Outline:
    html = comparison_page(comparison)
    for svg in re.findall(r"<svg.*?</svg>", html, re.DOTALL):
        ElementTree.fromstring(svg)
    return Outline(html)


def test_the_page(comparison):
    found = outline(comparison)
    assert found.texts["h1"] == ["Recipes compared"]
    head, bns, vanilla, pipe = found.texts["tr"][:4]
    assert head.startswith("recipetest accuracymedian stepspeed-uptime to target")
    assert "0.6500 ± 0.0000" in bns
    assert "3.00 ± 1.41 ×" in bns
    assert "1.00 ×" in vanilla
    assert "seed 1 failed: worker 1 died" in pipe
    assert "The count and the wire" in found.texts["h2"]
    assert "+1.00 %" in " ".join(found.texts["td"])
    lead = found.texts["p"][0]
    assert "2 hosts with links of 1gbit (a plain TCP stream reached 990 Mbit/s)" in lead
    assert "gcn of 2 × 8 on ring, 2 workers, 4 steps, 2 seeds" in lead


def test_without_links(tmp_path):
    found = outline(read_comparison(comparison_folder(tmp_path / "c", {"vanilla": [1.0], "exact": [0.5]})))
    assert "The count and the wire" not in found.texts["h2"]
    assert "one seed" in found.texts["p"][0]


def test_nothing_ended_well(tmp_path):
    found = outline(read_comparison(comparison_folder(tmp_path / "c", {"vanilla": ["no"], "exact": ["no"]})))
    assert "no run has ended" in found.texts["p"]
    assert "seed 0 failed: no" in found.texts["tr"][1]


def test_text_from_files_stays_text(comparison):
    asked = json.loads((comparison.folder / "compare.json").read_text())
    asked["graph"] = asked["link"] = asked["recipes"][0]["label"] = HOSTILE
    write(comparison.folder / "compare.json", asked)
    write(comparison.folder / "pipegcn/seed-1/failed.json", {"error": HOSTILE})
    write_comparison(read_comparison(comparison.folder), comparison.folder / "page.html")
    found = Outline((comparison.folder / "page.html").read_text("utf-8"))
    assert found.tags.count("script") == 1
    assert "img" not in found.tags
    assert "<script>alert(1)</script>" in found.texts["tr"][1]


def test_no_comparison(tmp_path):
    with pytest.raises(InputError, match=r"no compare\.json"):
        read_comparison(tmp_path)


def test_whiskers_are_where_the_axis_says():
    spread = Spread.of([1.0, 3.0])
    root = ElementTree.fromstring(whisker_chart([Mark("a", "r0", spread)], "title", score, empty=""))
    low, high = (float(dot.get("cx")) for dot in root.iter("circle"))
    _, mean = (path.get("d") for path in root.iter("path"))
    assert float(mean[1:].split()[0]) == pytest.approx((low + high) / 2, abs=0.1)
    assert whisker_chart([Mark("a", "r0", None)], "title", score, empty="none yet") == '<p class="nothing">none yet</p>'


def test_how_spreads_are_written():
    assert Spread.of([None, None]) is None
    assert plus_minus(Spread.of([0.5]), score) == "0.5000"
    assert plus_minus(Spread.of([0.4, 0.6, None]), score) == "0.5000 ± 0.1414"
    assert plus_minus(None, score) == times(None) == "–"
