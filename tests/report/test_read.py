"""Run folders are read as far as they go; damage is named with its file and line."""

from __future__ import annotations

import pytest
from report.folders import run_folder, write_lines

from isthmus.errors import InputError
from isthmus.report import read_runs


def read(folder):
    (run,) = read_runs([folder])
    return run


def test_a_finished_run(tmp_path):
    run = read(run_folder(tmp_path / "a", workers=2))
    assert (run.name, run.graph, run.recipe, run.metric, run.test) == ("a", "ring", "exact", "accuracy", 0.65)
    assert run.curve("loss") == [(1, 0.5, 2.0), (2, 1.0, 1.0), (3, 1.5, 0.5), (4, 2.0, 0.25)]
    assert run.curve("val") == [(2, 1.0, 0.5), (4, 2.0, 0.75)]
    assert run.best["step"] == 4
    assert run.seconds == {"compute": 1, "wait": 0.5, "sample": 0, "reduce": 0.5, "eval": 1, "other": 6}
    assert run.bytes_by_link == {(0, "forward"): 2048, (0, "backward"): 1024, ("weights", "reduce"): 512}
    assert run.bytes_per_step == 2048 + 1024 + 512
    assert run.rows_sent == [(step, 40) for step in (1, 2, 3, 4)]
    assert (run.hidden, run.stale, run.resumed) == (0.75, False, False)


def test_rows_that_grow_old(tmp_path):
    run = read(run_folder(tmp_path / "a", workers=2, age=2))
    assert run.stale
    assert run.ages == [(1, 0, 0), (2, 0.5, 1), (3, 1, 2), (4, 1, 2)]


def test_an_unfinished_run(tmp_path):
    run = read(run_folder(tmp_path / "a", finished=False))
    assert (run.summary, run.test, run.step_seconds, run.steps_done) == (None, 0.65, 0.5, 4)
    assert (run.bytes_per_step, run.bytes_by_kind, run.noted("memory_peak_bytes")) == (None, {}, None)
    assert list(run.seconds.values()) == [2.0]
    logged = read(run_folder(tmp_path / "b", finished=False, workers=2))
    assert logged.seconds == {"compute": 1, "wait": 0.5, "sample": 0, "reduce": 0.5}
    assert logged.bytes_per_step == 3584


def test_a_run_that_has_only_begun(tmp_path):
    run_folder(tmp_path / "a", finished=False)
    (tmp_path / "a/metrics.jsonl").unlink()
    run = read(tmp_path / "a")
    assert (run.metrics, run.best, run.test, run.step_seconds, run.steps_done) == ([], {}, None, None, 0)


def test_a_line_that_is_being_written_is_left_out(tmp_path):
    run_folder(tmp_path / "a", finished=False, workers=1)
    for name in ("metrics.jsonl", "worker-0.jsonl"):
        with (tmp_path / "a" / name).open("a") as file:
            file.write('{"step": 5, "lo')
    run = read(tmp_path / "a")
    assert (run.steps_done, run.workers[0].steps) == (4, 4)


def test_a_resumed_run(tmp_path):
    """Its summary counts from the last start, its metrics from the first."""
    run_folder(tmp_path / "a")
    lines = [{"step": step, "loss": 1.0, "seconds": 0.5} for step in range(1, 9)]
    write_lines(tmp_path / "a/metrics.jsonl", lines)
    assert read(tmp_path / "a").resumed


def test_scores_that_do_not_exist(tmp_path):
    run_folder(tmp_path / "a", finished=False)
    judged = [{"step": 1, "loss": None, "val": None, "test": 0.3}, {"step": 2, "loss": 1, "val": None, "test": 0.2}]
    write_lines(tmp_path / "a/metrics.jsonl", judged)
    run = read(tmp_path / "a")
    assert (run.test, run.step_seconds) == (0.2, None)
    assert run.curve("loss") == [(1, None, None), (2, None, 1.0)]


def test_values_of_the_wrong_kind_are_not_known(tmp_path):
    run_folder(tmp_path / "a", finished=False)
    odd = {
        "step": 1,
        "seconds": 4,
        "links": [7, [0, "forward"], [None, "forward", 0, 1, 1]],
        "age": "old",
        "hidden": {},
    }
    write_lines(tmp_path / "a/worker-0.jsonl", [odd, {"step": 2, "links": True}])
    run = read(tmp_path / "a")
    assert (run.step_seconds, run.bytes_by_link) == (0.5, {})
    assert sum(run.seconds.values()) == 0


@pytest.mark.parametrize(
    ("file", "content", "complaint"),
    [
        ("summary.json", {"test": 3}, "test is 3, not a json object"),
        ("summary.json", {"seconds": []}, "seconds is a list, not a json object"),
        ("summary.json", {"step_seconds": {"median": "fast"}}, "step_seconds.median is 'fast', not a number"),
        ("metrics.jsonl", {"step": 1, "val": "0.5"}, "line 1 is damaged .val is '0.5', not a number"),
        ("metrics.jsonl", {"step": 1, "loss": [1]}, "loss is a list, not a number"),
        ("config.json", {"model": {"hidden": "8"}}, "model.hidden is '8', not a whole number"),
        ("config.json", {"workers": 1.5}, "workers is 1.5, not a whole number"),
        ("config.json", {"parts": ["p"]}, "parts is a list, not text"),
    ],
)
def test_fields_of_another_type_are_refused(tmp_path, file, content, complaint):
    run_folder(tmp_path / "a")
    write_lines(tmp_path / "a" / file, [content])
    with pytest.raises(InputError, match=complaint):
        read(tmp_path / "a")


def test_names_tell_runs_apart(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("x/run", "y/run", "other"):
        run_folder(tmp_path / name)
    folders = [tmp_path / "x/run", tmp_path / "y/run", tmp_path / "other", tmp_path / "y/../other"]
    assert [run.name for run in read_runs(folders)] == [str(tmp_path / "x/run"), str(tmp_path / "y/run"), "other"]
    monkeypatch.chdir(tmp_path / "other")
    assert [run.name for run in read_runs(["."])] == ["other"]


def test_parts_that_are_gone(tmp_path):
    run = read(run_folder(tmp_path / "a"))
    assert run.book is None
    assert "the parts are gone" in run.without_book
    (tmp_path / "a/parts").mkdir()
    (tmp_path / "a/parts/book.json").write_text("{")
    assert "damaged json" in read(tmp_path / "a").without_book
    assert read(run_folder(tmp_path / "b", parts="x" * 5000)).book is None


@pytest.mark.parametrize(
    ("file", "content", "complaint"),
    [
        ("config.json", '{\n "a": 1,\n "b" 2\n}', r"config.json, line 3: damaged json"),
        ("config.json", "[]", r"config.json, line 1: not a json object"),
        ("summary.json", '{"a":', r"summary.json, line 1: damaged json"),
        ("summary.json", "[" * 100_000, r"summary.json, line 1: damaged json"),
        ("metrics.jsonl", '{"step": 1}\n{"step": 2\n{"step": 3}\n', r"metrics.jsonl, line 2: damaged json"),
        ("metrics.jsonl", '{"step": 1}\n\n{"step": 3}\n', r"metrics.jsonl, line 2: damaged json"),
        ("metrics.jsonl", '{"step": 1}\n7\n', r"metrics.jsonl, line 2: not a json object with a step"),
        ("metrics.jsonl", '{"step": "1"}\n', r"metrics.jsonl, line 1: not a json object with a step"),
        ("worker-1.jsonl", '{"step": 1}\n\x00\n', r"worker-1.jsonl, line 2: damaged json"),
    ],
)
def test_damage_is_named(tmp_path, file, content, complaint):
    run_folder(tmp_path / "a", workers=2)
    (tmp_path / "a" / file).write_text(content)
    with pytest.raises(InputError, match=complaint) as raised:
        read(tmp_path / "a")
    assert "\n" not in str(raised.value)


def test_no_run_folder(tmp_path):
    with pytest.raises(InputError, match=r"there is no run folder .*nothing: give one"):
        read(tmp_path / "nothing")
    with pytest.raises(InputError, match=r"is not a run folder \(no config.json\): give one"):
        read(tmp_path)
