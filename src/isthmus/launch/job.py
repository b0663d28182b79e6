"""Describe what workers are started to do, as json that every launcher can pass on."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from isthmus import recipes
from isthmus.comm import Hub, Processes, Transport
from isthmus.comm.meet import KEPT
from isthmus.comm.rendezvous import is_loopback
from isthmus.comm.secret import SECRET, SECRET_FILE, run_secret
from isthmus.console import note
from isthmus.device import AUTO, HELP, deterministic, pick
from isthmus.engine import PredictConfig, TrainConfig, predict, train
from isthmus.engine.agreement import check_agreement
from isthmus.engine.verify import verify
from isthmus.errors import InputError, enough_memory
from isthmus.launch.display import Display, counting
from isthmus.launch.events import FOLDER, events
from isthmus.launch.gauge import gauge
from isthmus.launch.memory import is_tight, kept_blocks
from isthmus.launch.network import LOOPBACK_ADDRESS, LOOPBACK_INTERFACE, addresses, towards
from isthmus.launch.place import Place, local_rank, threads_for
from isthmus.launch.signals import asked_to_stop
from isthmus.launch.trackers import read_names, tracking
from isthmus.local import Policy
from isthmus.options import check_options, option
from isthmus.partition import Book

_ALL, _PATH = "train compare verify predict", "str | os.PathLike[str] | None"
NO_SECRET = (
    f"there is no run secret, so whoever reaches the meeting point can end or disturb this run: set {SECRET}, or "
    f"{SECRET_FILE}, the same on every machine (docs/security.md)"
)


@dataclass(frozen=True)
class Job:
    """A run on the parts of a folder; `kind` is train, verify or predict; `config` is that of the training.

    The kind gauge needs neither: it measures the cost of messages (`launch.gauge`).
    """

    kind: str
    parts: str
    config: TrainConfig
    out: str | None = option(
        None, "The run folder; default: the next of runs/1, runs/2, …", "Run", "train", accepts=_PATH
    )
    resume: bool = option(False, "Resume the run SOURCE, or the one in --out.", "Run", "train")
    threads: int | None = option(
        None, "Per worker; default: an equal share of this machine's cores.", "Workers", f"{_ALL} plan Worker", least=1
    )
    timeout: float = option(300.0, "Seconds that a worker waits for another.", "Workers", f"{_ALL} Worker")
    device: str = option(AUTO, HELP, "Workers", f"{_ALL} Worker")
    quiet: bool = option(False, "No progress.", "Run", "train compare plan")
    prediction: PredictConfig | None = None
    restarts: int = option(
        3, "Restarts of a run that lost a worker, without progress between.", "Workers", "train", least=0
    )
    tensorboard: bool = option(False, "Write event files to RUN/tensorboard (an extra).", "Run", "train")
    track: str | None = option(None, "Also report to wandb or mlflow (extras); wandb,mlflow: to both.", "Run", "train")
    deterministic: bool = option(False, "The same bits in every run, also on accelerators: slower.", "Workers", "train")

    def check(self) -> None:
        """Refuse options before any work is done."""
        check_options(self)
        if not self.timeout > 0:
            raise InputError(f"timeout must be above 0 seconds, not {self.timeout:g}")

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    def asked(self) -> dict[str, Any]:
        """Return the options besides the config that must be equal on all workers, by their command-line names."""
        prediction = {} if self.prediction is None else asdict(self.prediction)
        prediction.pop("run", None)  # its copies may be in different folders; the weights are compared
        return {"command": self.kind, "resume": self.resume, **prediction}

    @staticmethod
    def from_json(text: str) -> Job:
        values = json.loads(text)
        asked = values["prediction"] and PredictConfig(**values["prediction"])
        return Job(**{**values, "config": TrainConfig.from_dict(values["config"]), "prediction": asked})


def join(place: Place, timeout: float) -> Transport:
    """Connect this worker with the others and return its links."""
    if place.size == 1:
        return Hub(1).transport(0)
    # Workers of one machine need no outside interface, unless the user asks for one (as the testbed does) or their
    # starter is on another machine (as with Ray).
    asked = os.environ.get("GLOO_SOCKET_IFNAME", "")
    alone = place.together and KEPT not in os.environ and asked in ("", LOOPBACK_INTERFACE)
    host = LOOPBACK_ADDRESS if alone else place.host
    if alone:
        os.environ["GLOO_SOCKET_IFNAME"] = LOOPBACK_INTERFACE
    elif not asked and (name := towards(host, place.port)):
        # By default gloo takes the interface of this machine's own name, which is often loopback.
        os.environ["GLOO_SOCKET_IFNAME"] = name
    if place.rank == 0 and not run_secret() and not is_loopback(host):
        note(NO_SECRET)
    name = os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0]
    return Processes(place.rank, place.size, host, place.port, timeout, addresses().get(name, ""))


def run(job: Job, transport: Transport, local_size: int = 1, last: bool = False) -> dict[str, Any]:
    """Do this worker's share of the job and return the summary; `last`: this process does nothing else afterwards."""
    torch.set_num_threads(threads_for(local_size, job.threads))
    room = enough_memory(f"what worker {transport.rank} has of {job.parts}")
    with kept_blocks(tight=is_tight(Path(job.parts))), room, deterministic(job.deterministic):
        return _run(job, transport, local_size, last)


def _run(job: Job, transport: Transport, local_size: int, last: bool) -> dict[str, Any]:
    if job.kind == "gauge":
        return gauge(transport)
    transport.use(pick(job.device, local_rank(transport.rank, local_size)))
    book = Book.read(job.parts)
    check_agreement(transport, job.config, book, job.asked())
    if job.kind == "verify":
        return verify(book, job.config, transport, recipes.find(job.config.recipe).policy(job.config.options))
    out = None if job.out is None else Path(job.out)
    config = job.config
    if job.prediction is not None and recipes.code_named_by(config.recipe, config.options):
        policy = Policy()  # a run folder may come from anybody; only the order of sums depends on it here
    else:
        policy = recipes.find(config.recipe).policy(config.options)
    config = config.settled(book, policy.batches)
    if job.prediction is not None:
        with counting(f"{book.name}: predict, {transport.size} worker(s)", transport) as count:
            return predict(book, job.prediction, transport, policy=policy, progress=count)
    board = out / FOLDER if out is not None and job.tensorboard and transport.rank == 0 else None
    names = read_names(job.track) if transport.rank == 0 else []
    with (
        asked_to_stop(last) as stop,
        Display(config, book, transport, quiet=job.quiet) as display,
        events(board) as write_events,
        tracking(names, out, config, display.note) as track,
    ):

        def watch(line: dict[str, Any]) -> None:
            display.show(line)
            write_events(line)
            track(line)

        result = train(
            book,
            config,
            transport,
            policy=policy,
            out=out,
            resume=job.resume,
            watch=watch,
            note=display.note,
            stop=stop,
        )
    return result.summary
