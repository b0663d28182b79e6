"""Restart all workers from the last checkpoint when one is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from isthmus.console import log
from isthmus.engine import checkpoint
from isthmus.engine.stop import command_to_go_on
from isthmus.errors import CodeError, WorkerError
from isthmus.launch.job import Job


def survive(job: Job, attempt: Callable[[Job], dict[str, Any]]) -> dict[str, Any]:
    """Call ``attempt(job)`` until it succeeds; give up after `job.restarts` restarts without a newer checkpoint.

    Wrong input and code that raised an exception are not tried again, since they would fail again.
    """
    if job.out is None or job.kind != "train":
        return attempt(job)
    run, failures = Path(job.out), 0
    reached = max(checkpoint.steps(run), default=0)
    while True:
        try:
            return attempt(job)
        except CodeError:
            raise
        except WorkerError as error:
            before, reached = reached, max(checkpoint.steps(run), default=0)
            failures = 1 if reached > before else failures + 1
            if failures > job.restarts:
                given_up = f"given up after {job.restarts} restarts without progress; " if job.restarts else ""
                raise WorkerError(f"{error}; {given_up}{_way_on(job, run, reached)}") from error
            log.error("%s; starting again from step %d (restart %d of %d)", error, reached, failures, job.restarts)
            # If config.json exists, there is a checkpoint; a run that was lost before that starts anew.
            job = replace(job, resume=job.resume or (run / "config.json").exists())


def _way_on(job: Job, run: Path, reached: int) -> str:
    if not (run / "config.json").exists():
        return "it was lost before its first checkpoint: start it again"
    return f"to go on from step {reached}: {command_to_go_on(run, job.config)}"
