"""Signals and restarts, as launchers and people send them."""

from __future__ import annotations

import os
import re
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from graphs import community_graph, cut
from processes import alive, reached, started, steps_of, until, workers_of

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc to find the workers")
LONG = ("--steps", "1000000")


@pytest.mark.parametrize(
    ("workers", "to_whom", "number", "status"),
    [
        (2, "starter", signal.SIGINT, 130),
        pytest.param(2, "worker", signal.SIGTERM, 143, marks=pytest.mark.full),
        pytest.param(1, "starter", signal.SIGTERM, 143, marks=pytest.mark.full),
    ],
)
def test_a_signal_writes_a_checkpoint_first(tmp_path, workers, to_whom, number, status):
    book = cut(community_graph(), 2, "random", tmp_path)
    options = ("--workers", str(workers), "--eval-every", "1000000", *LONG)
    run = started(book.folder, tmp_path / "run", *options)
    until(lambda: (tmp_path / "run/metrics.jsonl").exists() and (tmp_path / "run/metrics.jsonl").stat().st_size)
    children = workers_of(run.pid)
    os.kill(run.pid if to_whom == "starter" else children[1], number)
    complaint = run.communicate(timeout=60)[1]
    assert run.returncode == status
    assert len([line for line in complaint.splitlines() if not line.startswith("note:")]) == 1
    step = int(re.search(r"checkpoint of step (\d+) written; to go on: isthmus train --resume ", complaint)[1])
    assert steps_of(tmp_path / "run") == [0, step]
    assert not alive(children)


def test_late_signals_do_not_cut_the_end_short(tmp_path):
    """Whoever heard of the wish from another is ending when his own signal arrives; and some launchers send many."""
    book = cut(community_graph(), 2, "random", tmp_path)
    run = started(book.folder, tmp_path / "run", "--eval-every", "5", *LONG)
    until(lambda: reached(tmp_path / "run", 5))
    children = workers_of(run.pid)
    os.kill(run.pid, signal.SIGTERM)
    while run.poll() is None:
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGTERM)
    assert run.returncode == 143
    assert re.search(r"checkpoint of step \d+ written; to go on: isthmus train ", run.communicate(timeout=60)[1])


def test_signal_before_the_first_step(tmp_path):
    """Workers that are still starting have nothing to write, and end at once."""
    book = cut(community_graph(), 2, "random", tmp_path)
    run = started(book.folder, tmp_path / "run", *LONG)
    until(lambda: len(workers_of(run.pid)) == 2)
    children = workers_of(run.pid)
    os.kill(run.pid, signal.SIGTERM)
    complaint = run.communicate(timeout=60)[1]
    assert run.returncode in (143, -signal.SIGTERM)
    assert "Traceback" not in complaint
    until(lambda: not alive(children), 10)


def test_torchrun_restarts_and_preempts(tmp_path):
    """The same command, started again by its launcher, goes on; SIGTERM to the launcher reaches every worker."""
    book = cut(community_graph(), 2, "random", tmp_path)
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "1")
    run = started(book.folder, tmp_path / "run", "--eval-every", "5", *LONG, launcher=torchrun)
    until(lambda: reached(tmp_path / "run", 5))
    children = workers_of(run.pid)
    os.kill(children[0], signal.SIGKILL)
    until(lambda: not alive(children))
    before = steps_of(tmp_path / "run")[-1]
    until(lambda: reached(tmp_path / "run", before + 1))
    children = workers_of(run.pid)
    os.kill(run.pid, signal.SIGTERM)
    complaint = run.communicate(timeout=60)[1]
    step = int(re.search(r"checkpoint of step (\d+) written; to go on: isthmus train --resume ", complaint)[1])
    assert run.returncode != 0
    assert steps_of(tmp_path / "run")[-1] == step
    assert not alive(children)


def test_given_up_after_restarts_without_progress(tmp_path):
    book = cut(community_graph(), 2, "random", tmp_path)
    run = started(book.folder, tmp_path / "run", "--restarts", "1", *LONG)
    for _ in range(2):
        until(lambda: len(workers_of(run.pid)) == 2)
        children = workers_of(run.pid)
        os.kill(children[1], signal.SIGKILL)
        until(lambda children=children: not alive(children))
    complaint = run.communicate(timeout=60)[1].splitlines()
    assert run.returncode == 3
    assert "worker 1 was ended by SIGKILL; starting again from step 0 (restart 1 of 1)" in complaint[0]
    assert "given up after 1 restarts without progress; " in complaint[1]
