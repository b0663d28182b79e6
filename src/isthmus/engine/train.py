"""Train from parts to a trained model; the same code for one worker and for many, for both planes."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from isthmus.comm import Ledger, Transport, Where
from isthmus.engine import checkpoint
from isthmus.engine.agreement import check_weights
from isthmus.engine.checkpoints import Checkpoints, meet
from isthmus.engine.config import TrainConfig
from isthmus.engine.hooks import Hooks
from isthmus.engine.judge import HeldOutLinks, Judge
from isthmus.engine.learning import Learner
from isthmus.engine.learnt import RunRows, own_range
from isthmus.engine.notes import of_first_step, shared_norms
from isthmus.engine.plane import Plane, plane_of
from isthmus.engine.prepare import Views, prepare
from isthmus.engine.progress import Progress
from isthmus.engine.record import (
    KINDS,
    Record,
    Stopwatch,
    WorkerRecord,
    check_folder,
    memory_peak_bytes,
    over_workers,
    probed_errors,
    without_nan,
)
from isthmus.engine.run_files import steps_told, threads_of
from isthmus.engine.saved_run import SavedRun, described
from isthmus.engine.stop import Stop, command_to_go_on
from isthmus.errors import InputError, Stopped
from isthmus.local import Policy, Runtime
from isthmus.partition import Book
from isthmus.tasks.losses import check_loss, pairs_of
from isthmus.tasks.metrics import LINKS, check_metric, default_metric, is_better
from isthmus.tasks.task import Task

# Options that the first runs did not have.
ADDED = ("scheduler", "clip", "accumulate", "ema", "loss", "edge_weights", "init", "eval_fanout")


@dataclass
class Result:
    """The result of a run in memory: the best model by validation score, and the summary that is also on disk."""

    model: nn.Module
    summary: dict[str, Any]


def train(
    book: Book,
    config: TrainConfig,
    transport: Transport,
    *,
    policy: Policy | None = None,
    model: nn.Module | None = None,
    out: Path | None = None,
    resume: bool = False,
    **hooks: Unpack[Hooks],
) -> Result:
    """Train on the parts of this worker together with the others; every worker calls it with the same arguments.

    ``policy`` is what a recipe makes of its options (None: exact training). ``model`` replaces the one that the config
    describes; ``out`` is the run folder (None writes nothing).
    """
    task, policy = Task.of(book), policy or Policy()
    embeds = pairs_of(config.loss) is not None
    metric = config.metric or default_metric(task, embeds)
    check_metric(metric, task, embeds)
    check_loss(config.loss, task)
    config = config.settled(book, policy.batches)
    views, model, optimizer = prepare(book, config, policy, transport, model)
    if config.init is not None and not resume:
        SavedRun.read(config.init).load_into(model)
    check_weights(transport, model)
    plane = plane_of(book, config, policy, views, model)
    run = _TrainingRun(book, config, transport, views, model, optimizer, metric, out, hooks, plane)
    try:
        run.begin(resume)
        run.loop()
        plane.close(wait=True)
        return run.end()
    finally:
        plane.close(wait=False)
        views.train.graph.runtime.close()


@dataclass
class _TrainingRun:
    """The state of one run while it lasts."""

    book: Book
    config: TrainConfig
    transport: Transport
    views: Views
    model: nn.Module
    optimizer: Learner
    metric: str
    out: Path | None
    hooks: Hooks
    plane: Plane

    def __post_init__(self) -> None:
        self.watch = self.hooks.get("watch") or (lambda line: None)
        self.note = self.hooks.get("note") or (lambda text: None)
        self.stop = self.hooks.get("stop") or Stop()
        self.record = Record(self.out if self.transport.rank == 0 else None)
        self.worker_record = WorkerRecord(self.out, self.transport.rank)
        self.progress = Progress()
        self.best: dict[str, Tensor] = _copy(self.model)
        links = HeldOutLinks.of(self.book, self.transport) if self.metric == LINKS else None
        self.judge = Judge(self.metric, Task.of(self.book), links)
        self.rows = RunRows.of(self.views.train.learnt, own_range(self.book, self.transport))
        self.clock, self.done, self.total = Stopwatch(), 0, Ledger()
        self.saved: Checkpoints | None = None
        if self.out is not None:
            about = self.runtime, self.model, self.optimizer, self.identity, self.rows or self.plane.kept
            self.saved = Checkpoints(self.out, *about)

    @property
    def identity(self) -> dict[str, Any]:
        """The options that must not change when a run is resumed."""
        asked = {name: value for name, value in self.config.as_dict().items() if name not in checkpoint.MAY_CHANGE}
        for name in ADDED:  # runs of earlier versions go on
            if asked[name] == getattr(TrainConfig, name):
                del asked[name]
        return {"graph": self.book.name, "parts": self.book.fingerprint, **asked}

    def begin(self, resume: bool) -> None:
        if resume:
            self.restore()
        if self.record.folder is not None:
            check_folder(self.record.folder, resume)
        if self.transport.rank == 0 and (shared := shared_norms(self.model, self.transport.size)):
            self.note(shared)
        if self.rows and self.transport.rank == 0:
            self.note(self.rows.words(self.book.name))
        if not resume:
            self.save()  # before config.json: if that exists, there is a checkpoint to resume from
        self.record.begin(
            described(self.model, self.config, self.book, self.transport, self.views.train.x.shape[1]),
            self.progress.step if resume else None,
        )
        self.worker_record.begin(self.progress.step if resume else None)

    def restore(self) -> None:
        """Resume from the newest intact checkpoint; worker 0 chooses it, so that all use the same."""
        if self.out is None or self.saved is None:
            raise InputError("--resume needs the run's folder: give --out RUN")
        first, size = self.transport.rank == 0, self.transport.size
        found = torch.zeros(2, dtype=torch.int64)
        if first:
            newest = checkpoint.newest(self.out, self.note)
            found = torch.tensor([newest, int(steps_told(self.out) == newest)])
        step, told = self.transport.all_reduce(found, Where("checkpoint", "reduce", 0)).tolist()
        self.progress, self.best, before = self.saved.restore(step)
        if self.progress.step > self.config.steps or (told and self.progress.step == self.config.steps):
            raise InputError(
                f"{self.out} has already done {self.progress.step} steps: give more --steps to go on with it"
            )
        if told and self.out_of_patience:
            raise InputError(
                f"{self.out} ended at step {self.progress.step}, {self.progress.waited} evaluations after its best: "
                "give more --patience to go on with it"
            )
        threads, before_threads = torch.get_num_threads(), threads_of(self.out) if first else None
        if before == size and before_threads not in (None, threads):
            self.note(
                f"{self.out} had {before_threads} thread(s) per worker and goes on with {threads}: sums are taken in "
                "another order, so its last digits may differ from those of a run that was never interrupted"
            )
        if before != size and first:
            held = f", and what the channels of {self.config.recipe} held is fetched anew"
            held = "" if self.runtime.stateless else held
            self.note(
                f"{self.out} had {before} worker(s) and goes on with {size}: sums are taken in another order{held}, "
                "so its last digits will differ from those of a run that was never interrupted"
            )

    def loop(self) -> None:
        config, progress = self.config, self.progress
        every = config.checkpoint_every or config.eval_every
        while progress.step < config.steps and not self.out_of_patience:
            self.transport.ledger.take()
            begun = time.perf_counter()
            probe = bool(config.probe_every) and progress.step % config.probe_every == 0
            self.optimizer.begin(progress)
            loss = self.plane.step(self.model, self.optimizer, progress.step, probe, self.stop)
            ledger = self.transport.ledger.take()
            seconds = self.clock.step(begun, ledger)
            self.done += 1
            self.total.add(ledger)
            progress.step += 1
            if self.done == 1 and self.transport.rank == 0:
                for told in of_first_step(self.config, self.book, self.views.train.graph, self.model, progress.step):
                    self.note(told)
            if not math.isfinite(loss):
                wider = "" if self.runtime.loss_scale is None else ", or take precision=bf16"
                told = f"the loss became {loss} at step {progress.step}: lower --lr, or scale the features{wider}"
                raise InputError(told)
            line: dict[str, Any] = {"step": progress.step, "loss": loss, "seconds": seconds["step"]}
            if self.runtime.loss_scale is not None:
                line["loss_scale"] = self.runtime.loss_scale.scale
            if cache := self.runtime.channels.cache_line():
                line["cache"] = cache
            line |= self.runtime.line()
            if probe:
                line["error"] = probed_errors(self.runtime.channels.errors, self.transport)
                if self.runtime.gradient_error is not None:
                    line["gradient_error"] = self.runtime.gradient_error
            if progress.step % config.eval_every == 0 or progress.step == config.steps:
                line |= self.evaluate()
            self.record.line(**line)
            self.worker_record.line(progress.step, seconds, ledger, self.plane.told)
            self.watch({**line, "split": seconds, "bytes": sum(ledger.kinds.values())})
            over = progress.step == config.steps or self.out_of_patience
            if progress.step % every == 0 or over or self.stop.agreed:
                self.save()
            if self.stop.agreed and not over:
                self.plane.close(wait=True)
                self.runtime.drain()
                meet(self.transport, progress.step)  # no worker exits before worker 0 has written
                raise Stopped(self.last_words if self.transport.rank == 0 else "", self.stop.status)

    @property
    def last_words(self) -> str:
        if self.out is None:
            return f"stopped at step {self.progress.step}; nothing was written, since the run has no folder"
        going_on = command_to_go_on(str(self.out), self.config)
        return f"stopped: checkpoint of step {self.progress.step} written; to go on: {going_on}"

    @property
    def out_of_patience(self) -> bool:
        return bool(self.config.patience) and self.progress.waited >= self.config.patience

    def evaluate(self) -> dict[str, float]:
        passes = self.progress.step * self.config.accumulate
        with self.optimizer.averaged():
            with self.clock.evaluation():
                scores = self.plane.evaluate(self.model, self.views, self.judge, passes)
            best = self.progress.best
            unjudged = scores["val"] != scores["val"]  # no validation node: keep the latest weights
            better = not best or unjudged or is_better(self.metric, scores["val"], best["val"])
            if better:
                self.progress.best, self.progress.best_step, self.progress.waited = scores, self.progress.step, 0
                self.best = _copy(self.model)
                if self.rows:
                    self.rows.keep_best()
        if not better:
            self.progress.waited += 1
        self.optimizer.judged(self.progress, better)
        return scores

    @property
    def runtime(self) -> Runtime:
        return self.views.train.graph.runtime

    def save(self) -> None:
        if self.saved is None:
            return
        if self.rows:
            self.plane.settle()
            meet(self.transport, self.progress.step)  # updates of others have arrived
        self.saved.save(self.progress, self.best)

    def end(self) -> Result:
        self.runtime.drain()
        self.model.load_state_dict(self.best)
        if self.rows:
            self.rows.use_best()
        summary = without_nan(self.summarise())
        self.record.end(summary)
        return Result(self.model, summary)

    def summarise(self) -> dict[str, Any]:
        """Return the figures of all workers: bytes, rows and memory summed, times of worker 0."""
        steps, best, total = max(self.done, 1), self.progress.best, self.total
        rows_sent = sum(total.rows.values())
        mine: list[float] = [*(total.kinds[kind] for kind in KINDS), rows_sent, self.runtime.whole.links.num_mirrors]
        mine += [
            total.cache_hits,
            total.cache_misses,
            memory_peak_bytes(),
            total.age_sum,
            total.rows_used,
            total.age_max,
            total.wait_seconds,
            total.under_way_seconds,
            total.rows_local,
            *total.between(self.transport.rank, self.transport.hosts),
        ]
        table = over_workers(mine, self.transport)
        sums = table.sum(0).tolist()
        *sent, rows, halo, hits, misses, memory, age, used, _, wait, under_way, near, far_rows, far = sums
        return {
            "recipe": self.config.recipe,
            "options": self.config.options,
            "model": asdict(self.config.model),
            "graph": self.book.name,
            "workers": self.transport.size,
            "steps": self.progress.step,
            "seed": self.config.seed,
            "best_val": best.get("val"),
            "best_step": self.progress.best_step,
            "train": best.get("train"),
            "test": {"score": best.get("test"), "metric": self.metric},
            **self.clock.summary(),
            "bytes_per_step": {kind: round(size / steps) for kind, size in zip(KINDS, sent, strict=True)},
            "rows": {
                "halo": round(halo),
                "sent": round(rows / steps),
                "cached_hits": round(hits / steps),
                "from_files": round(near / steps),
            },
            "between_hosts": {
                "hosts": len(set(self.transport.hosts)),
                "rows_per_step": round(far_rows / steps),
                "bytes_per_step": round(far / steps),
            },
            "hit_rate": hits / (hits + misses) if hits + misses else None,
            "staleness": {"mean": age / max(used, 1.0), "max": round(float(table[:, -6].max()))},
            "hidden": 1 - min(1.0, wait / under_way) if under_way else None,
            "memory_peak_bytes": round(memory),
            "run": None if self.out is None else str(self.out),
        }


def _copy(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
