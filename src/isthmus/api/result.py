"""The result of a training run, for the terminal, for Python and for notebooks."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from isthmus.engine.checkpoint import read_best
from isthmus.engine.saved_run import SavedRun
from isthmus.nn.export import pyg_names
from isthmus.wording import methods_speak_python


@methods_speak_python
@dataclass(frozen=True, repr=False)
class TrainResult:
    """A finished run; ``summary`` is the content of its summary.json; the properties come from it or the run folder."""

    summary: dict[str, Any]

    @property
    def scores(self) -> dict[str, float | None]:
        """The scores of train, val and test nodes by the weights with the best validation score; None: no such node."""
        return {
            "train": self.summary["train"],
            "val": self.summary["best_val"],
            "test": self.summary["test"]["score"],
        }

    @property
    def metric(self) -> str:
        """The metric of the scores: accuracy, micro-f1 or roc-auc."""
        return self.summary["test"]["metric"]

    @property
    def seconds(self) -> dict[str, float]:
        """The seconds of worker 0 by purpose: compute, wait, sample, reduce, eval, total."""
        return self.summary["seconds"]

    @property
    def step_seconds(self) -> dict[str, float]:
        """The length of a step: median and p90."""
        return self.summary["step_seconds"]

    @property
    def bytes_per_step(self) -> dict[str, int]:
        """The bytes that all workers sent in a step, by kind: features, embeddings, gradients, weights, ids."""
        return self.summary["bytes_per_step"]

    @property
    def run(self) -> Path:
        """The run folder: config.json, metrics.jsonl, summary.json, checkpoints/."""
        return Path(self.summary["run"])

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """Every line of metrics.jsonl: step, loss, seconds, and at evaluations the scores."""
        return [json.loads(line) for line in (self.run / "metrics.jsonl").read_text().splitlines()]

    def state_dict(self, names: str = "own") -> dict[str, Tensor]:
        """Return the best weights; ``names="pyg"``: under the names of PyG's GCN, GraphSAGE or GAT."""
        weights = read_best(self.run)[1]
        return weights if names == "own" else pyg_names(self.summary["model"]["model"], weights)

    @property
    def model(self) -> nn.Module:
        """The model with the best weights, to be called with a graph (`isthmus.Worker`) or, one of PyG's, as it is."""
        saved = SavedRun.read(self.run)
        return saved.model(saved.book(), named=self.summary["model"]["model"])

    def predict(self, out: str | os.PathLike[str], **options: Any) -> dict[str, Any]:
        """Predict with this run; see `isthmus.predict`."""
        from isthmus.api.training import predict

        return predict(self, out, **options)

    def report(self, out: str | os.PathLike[str] | None = None) -> Path:
        """Write the page that `isthmus report` makes of this run; return its path."""
        from isthmus.report import read_runs, write

        page = self.run / "report.html" if out is None else Path(out)
        write(read_runs([self.run]), page)
        return page

    @property
    def title(self) -> str:
        return f"{self.summary['graph']}: {self.summary['recipe']} on {self.summary['workers']} worker(s)"

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield the result in a few lines: (name, value)."""
        summary, seconds, scores = self.summary, self.seconds, self.scores
        judged = f"validation {_score(scores['val'])}, step {summary['best_step']}"
        yield f"test {self.metric}", f"{_score(scores['test'])} ({judged})"
        yield "steps", f"{summary['steps']}, median {self.step_seconds['median'] * 1e3:.1f} ms"
        names = ("compute", "wait", "reduce", "eval", "total")
        yield "seconds", ", ".join(f"{name} {seconds[name]:.1f}" for name in names)
        sent = ", ".join(f"{kind} {size:,}" for kind, size in self.bytes_per_step.items() if size)
        yield "bytes per step", sent or "none"
        if summary["staleness"]["max"]:
            age = summary["staleness"]
            yield "age of rows used", f"{age['mean']:.2f} steps, at most {age['max']}"
        if summary["hidden"] is not None:
            yield "transfers hidden", f"{summary['hidden']:.0%} of transfer time overlapped with computation"
        yield "memory, all workers", f"{summary['memory_peak_bytes'] / 2**20:,.0f} MiB"
        if summary["run"]:
            yield "run", summary["run"]

    def __repr__(self) -> str:
        return "\n".join([self.title, *(f"  {name:<20} {value}" for name, value in self.rows())])

    def _repr_html_(self) -> str:
        """Return the table that a notebook shows."""
        cell = '<td style="text-align: left">{}</td>'
        lines = ("".join(cell.format(html.escape(text)) for text in row) for row in self.rows())
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        return f"<table><caption>{html.escape(self.title)}</caption>{body}</table>"


def _score(value: float | None) -> str:
    return "none: no such nodes" if value is None else f"{value:.4f}"
