"""Report a run to experiment trackers while it runs, on worker 0 (extras: wandb, mlflow).

A tracker is a class with `begin`, `log` and `end`; its package is imported when a run asks for it by ``--track NAME``.
The run folder stores which trackers follow a run and under which ids, so that a resumed run continues there, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from isthmus.engine import TrainConfig
from isthmus.engine.config import flat
from isthmus.engine.record import write_json
from isthmus.errors import InputError
from isthmus.launch.events import scalars

FILE = "trackers.json"  # in the run folder: {name: id}
Line = dict[str, Any]


class Tracker(Protocol):
    """An experiment tracker that follows one run."""

    def begin(self, run: Path, config: dict[str, Any], known_as: str | None) -> str:
        """Begin, or continue the run with an earlier id; return the id."""
        ...

    def log(self, step: int, values: dict[str, float]) -> None:
        """Record the values of a step: loss, score/val, seconds/wait, bytes, …"""
        ...

    def end(self, results: dict[str, float] | None) -> None:
        """End with the scores of the best weights; None: the run failed or was stopped."""
        ...


class Wandb:
    """A tracker for Weights & Biases, set up by its own variables (WANDB_PROJECT, WANDB_MODE …)."""

    def begin(self, run: Path, config: dict[str, Any], known_as: str | None) -> str:
        import wandb

        name = run.resolve().name
        self.run = wandb.init(name=name, dir=str(run), config=config, id=known_as, resume="allow")
        return str(self.run.id)

    def log(self, step: int, values: dict[str, float]) -> None:
        self.run.log(values, step=step)

    def end(self, results: dict[str, float] | None) -> None:
        self.run.summary.update(results or {})
        self.run.finish(exit_code=1 if results is None else 0)


class Mlflow:
    """A tracker for MLflow, set up by its own variables (MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME …)."""

    def begin(self, run: Path, config: dict[str, Any], known_as: str | None) -> str:
        import mlflow

        self.mlflow = mlflow
        begun = mlflow.start_run(run_id=known_as, run_name=run.resolve().name, nested=True)
        if known_as is None:  # parameters cannot be changed later
            mlflow.log_params(config)
        return str(begun.info.run_id)

    def log(self, step: int, values: dict[str, float]) -> None:
        self.mlflow.log_metrics(values, step=step, synchronous=False)

    def end(self, results: dict[str, float] | None) -> None:
        if results:
            self.mlflow.log_metrics(results)
        self.mlflow.end_run("FAILED" if results is None else "FINISHED")


TRACKERS: dict[str, Callable[[], Tracker]] = {"wandb": Wandb, "mlflow": Mlflow}


def read_names(asked: str | None) -> list[str]:
    """Return the trackers that ``--track`` names, separated by commas; refuse unknown or uninstalled ones.

    ``none`` is for a resumed run that continues without the trackers that it had.
    """
    names = [name for piece in (asked or "").split(",") if (name := piece.strip()) and name != "none"]
    for name in names:
        if name not in TRACKERS:
            raise InputError(f"no tracker {name!r}: --track takes {', '.join(TRACKERS)}; TensorBoard is --tensorboard")
        if find_spec(name) is None:
            raise InputError(f"--track {name} needs the {name} package: pip install 'isthmus[{name}]', or --track none")
    return names


@contextmanager
def tracking(
    names: Sequence[str], run: Path | None, config: TrainConfig, note: Callable[[str], None]
) -> Iterator[Callable[[Line], None]]:
    """Give a watcher of training that reports to the named trackers; without a run folder or names it does nothing.

    A tracker that cannot begin is an error before the first step; one that fails later is noted, and the run continues.
    """
    followers = {} if run is None else {name: TRACKERS[name]() for name in names}
    if run is None or not followers:
        yield lambda line: None
        return
    _begin(followers, run, config)

    def tell(what: str, *about: Any) -> None:
        for name, follower in list(followers.items()):
            try:
                getattr(follower, what)(*about)
            except Exception as error:  # whatever its package raises, the run must go on
                del followers[name]
                first = str(error).strip().partition("\n")[0]
                note(f"{name} failed ({type(error).__name__}: {first}): the run goes on without it")

    try:
        yield lambda line: tell("log", line["step"], scalars(line))
        tell("end", _results(run))
    except BaseException:
        tell("end", None)
        raise


def _begin(followers: dict[str, Tracker], run: Path, config: TrainConfig) -> None:
    known = ids(run)
    said = {name: value for name, value in flat(config.as_dict()).items() if value is not None}
    begun: list[Tracker] = []
    for name, follower in followers.items():
        try:
            known[name] = follower.begin(run, said, known.get(name))
            begun.append(follower)
        except Exception as error:
            for earlier in begun:
                with suppress(Exception):
                    earlier.end(None)
            first = str(error).strip().partition("\n")[0]
            raise InputError(f"{name} cannot follow {run} ({first}): correct that, or --track none") from error
    run.mkdir(parents=True, exist_ok=True)
    write_json(run / FILE, known)


def ids(run: Path) -> dict[str, str]:
    """Return the id under which each tracker knows a run."""
    try:
        known = json.loads((run / FILE).read_text())
        return {name: known[name] for name in TRACKERS if isinstance(known.get(name), str)}
    except (OSError, ValueError, AttributeError):
        return {}


def _results(run: Path) -> dict[str, float]:
    """Return the scores of the best weights."""
    summary = json.loads((run / "summary.json").read_text())
    found = {"train": summary["train"], "val": summary["best_val"], "test": summary["test"]["score"]}
    return {f"best/{name}": value for name, value in found.items() if value is not None}
