"""The page holds what the runs are about, and only text from their files."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from graphs import community_graph, cut
from report.folders import run_folder, write_lines

from isthmus.comm import Hub
from isthmus.engine import TrainConfig, train
from isthmus.nn import ModelConfig
from isthmus.report import overview, page, read_runs, write

SECTIONS = ["Learning", "Where the time went", "What crossed the links in a step", "The partition", "Options"]
OPEN = {"meta", "br", "line", "rect", "circle", "path"}  # elements without an end tag, here


class Outline(HTMLParser):
    """The tags of a page, each closed in order; its headings, captions and cells as text."""

    def __init__(self, html: str):
        super().__init__()
        self.stack: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(html)
        assert self.stack == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in OPEN:
            self.stack.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag):
        if tag not in OPEN:
            assert self.stack.pop() == tag

    def handle_data(self, data):
        for tag in self.stack:
            self.texts[tag][-1] += data


def outline(*folders) -> Outline:
    html = page(read_runs(folders))
    for svg in re.findall(r"<svg.*?</svg>", html, re.DOTALL):
        ElementTree.fromstring(svg)
    return Outline(html)


def test_one_run(tmp_path):
    found = outline(run_folder(tmp_path / "a", workers=2))
    assert found.texts["h1"] == ["a"]
    assert found.texts["h2"] == SECTIONS
    assert found.tags.count("svg") == 8
    for caption in ("Loss by step", "Loss by time", "Validation accuracy by step", "Validation accuracy by time"):
        assert caption in found.texts["figcaption"]
    row = found.texts["tr"][1]
    for cell in ("exact", "0.6500", "500 ms", "3.5 KiB", "75.0 %", "3.0 MiB"):
        assert cell in row
    text = " ".join(found.texts["body"])
    assert "site 0, forward" in text
    assert "weights, reduce" in text
    assert "the parts are gone" in text
    assert "speed-up" not in text


def test_nothing_is_fetched(tmp_path):
    found = outline(run_folder(tmp_path / "a"))
    assert not {"link", "img", "iframe", "object", "embed", "image", "use"} & set(found.tags)
    assert not {"src", "href", "action", "onload"} & {name for name, _ in found.attributes}
    assert not re.search(r"url\(|@import|https?:", page(read_runs([tmp_path / "a"])))


def test_runs_side_by_side(tmp_path):
    one = run_folder(tmp_path / "one", step_seconds=0.4, lr=0.1, workers=2)
    two = run_folder(tmp_path / "two", step_seconds=0.8, recipe="vanilla", rows_dtype="bf16")
    assert [row["speed_up"] for row in overview(read_runs([one, two]))] == [2.0, 1.0]
    found = outline(one, two)
    assert found.texts["h1"] == ["2 runs"]
    assert "median step time of two" in " ".join(found.texts["p"])
    assert "2.00 ×" in found.texts["tr"][1]
    marked = [row.replace("≠", "") for row in found.texts["tr"] if "≠" in row]
    assert marked == ["recipeexactvanilla", f"parts{one}/parts{two}/parts", "lr0.1–", "rows_dtype–bf16"]
    assert "not known, without worker-K.jsonl: two" in " ".join(found.texts["p"])


def test_without_vanilla_the_first_run_is_the_measure(tmp_path):
    runs = [run_folder(tmp_path / name, step_seconds=seconds) for name, seconds in (("a", 0.2), ("b", 0.1))]
    elsewhere = run_folder(tmp_path / "c", graph="path")
    assert [row["speed_up"] for row in overview(read_runs([*runs, elsewhere]))] == [1.0, 2.0, None]
    json.dumps(overview(read_runs(runs)), allow_nan=False)


def test_a_run_has_one_colour_everywhere(tmp_path):
    folders = [run_folder(tmp_path / f"run{k}", workers=1) for k in range(8)]
    html = page(read_runs(folders))
    for name, colour in (("run0", "run r0"), ("run5", "run r5"), ("run7", "run r1 again1")):
        assert set(re.findall(rf'class="line ([^"]*)" data-name="{name}"', html)) == {colour}
        assert set(re.findall(rf'class="swatch (run [^"]*)"></i>{name}<', html)) == {colour}
        assert f'class="segment {colour}"><title>{name}:' in html


def test_an_unfinished_run(tmp_path):
    found = outline(run_folder(tmp_path / "a", finished=False), run_folder(tmp_path / "b"))
    row = found.texts["tr"][1]
    assert "unfinished: step 4 of 4" in row
    assert "0.6500 so far" in row
    assert "not yet known of a" in " ".join(found.texts["p"])


def test_a_run_that_has_only_begun(tmp_path):
    run_folder(tmp_path / "a", finished=False)
    (tmp_path / "a/metrics.jsonl").unlink()
    found = outline(tmp_path / "a")
    assert "unfinished: step 0 of 4" in found.texts["tr"][1]
    assert "no step was recorded" in found.texts["p"]


def test_old_rows(tmp_path):
    fresh, stale = run_folder(tmp_path / "fresh", workers=2), run_folder(tmp_path / "stale", workers=2, age=2)
    assert "Rows and their age" not in outline(fresh).texts["h2"]
    found = outline(fresh, stale)
    assert "Rows and their age" in found.texts["h2"]
    assert "Oldest row that was read, in steps: stale 2." in found.texts["p"]


HOSTILE = "</title></style></svg><script>alert(1)</script><img src=x onerror=alert(1)>\"'&\ud800"


def test_text_from_files_stays_text(tmp_path):
    """Names of graph, recipe, options, sites, metric, run folder: all may be hostile."""
    folder = run_folder(
        tmp_path / "<b onclick='x'>",
        graph=HOSTILE,
        recipe=HOSTILE,
        workers=1,
        age=1,
        model={"model": HOSTILE, HOSTILE: HOSTILE},
        optimizer=HOSTILE,
    )
    content = json.loads((folder / "summary.json").read_text())
    content["test"]["metric"] = HOSTILE
    (folder / "summary.json").write_text(json.dumps(content))
    log = {"step": 1, "seconds": {HOSTILE: 1.0}, "links": [[HOSTILE, HOSTILE, 0, 1, 1]]}
    write_lines(folder / "worker-0.jsonl", [log])
    other = run_folder(tmp_path / "other", finished=False, optimizer=HOSTILE)
    write(read_runs([folder, other]), tmp_path / "page.html")
    html = (tmp_path / "page.html").read_text("utf-8")
    found = Outline(html)
    assert found.tags.count("script") == 1
    assert not {"img", "b"} & set(found.tags)
    assert not [name for name, _ in found.attributes if name.startswith("on")]
    for svg in re.findall(r"<svg.*?</svg>", html, re.DOTALL):
        ElementTree.fromstring(svg)
    assert "<script>alert(1)</script>" in " ".join(found.texts["main"])


def test_a_real_run(tmp_path):
    book = cut(community_graph(), 2, "random", tmp_path)
    config = TrainConfig(model=ModelConfig(hidden=8), steps=6, eval_every=2)
    Hub(2).run(lambda transport: train(book, config, transport, out=tmp_path / "run"))
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    found = outline(tmp_path / "run")
    assert f"{summary['test']['score']:.4f}" in found.texts["tr"][1]
    assert {"Nodes of each part", "Edges into each part", "By kind"} <= set(found.texts["figcaption"])
    about = " ".join(found.texts["p"])
    assert f"{book.nodes} nodes and {book.edges:,} edges in 2 parts by random" in about
    assert f"{book.quality['volume']:,} rows cross links" in about
    (row,) = overview(read_runs([tmp_path / "run"]))
    assert row["bytes_per_step"] == sum(summary["bytes_per_step"].values())
    assert (row["steps"], row["finished"], row["workers"]) == (6, True, 2)


def test_runs_on_the_same_parts_share_a_picture(tmp_path):
    graph = community_graph()
    same, other = cut(graph, 2, "random", tmp_path), cut(graph, 3, "random", tmp_path)
    folders = [
        run_folder(tmp_path / name, parts=str(book.folder)) for name, book in (("a", same), ("b", same), ("c", other))
    ]
    assert "h3" not in outline(*folders[:2]).texts
    assert outline(*folders).texts["h3"] == ["a, b", "c"]


def test_the_page_is_written_whole_or_not_at_all(tmp_path):
    runs = read_runs([run_folder(tmp_path / "a")])
    (tmp_path / "taken").mkdir()
    with pytest.raises(ValueError, match=r"cannot write .*taken .*: give another --out"):
        write(runs, tmp_path / "taken")
    with pytest.raises(ValueError, match="give another --out"):
        write(runs, tmp_path / "no/such/folder.html")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "taken"]
