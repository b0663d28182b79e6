"""Run a job from a source: cut the graph if it is not yet cut, then start workers or join the existing ones."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from isthmus.comm import Hub, Transport, Where
from isthmus.console import note
from isthmus.engine.predict import PredictConfig, check_files
from isthmus.engine.record import check_folder
from isthmus.engine.run_files import workers_of
from isthmus.engine.saved_run import SavedRun
from isthmus.engine.stop import command_to_go_on
from isthmus.errors import InputError, Stopped
from isthmus.graph import load
from isthmus.launch import events, local, on_ray
from isthmus.launch.claim import claimed
from isthmus.launch.job import Job, join, run
from isthmus.launch.place import Place, detect
from isthmus.launch.restart import survive
from isthmus.launch.trackers import read_names
from isthmus.options import check_options, option
from isthmus.partition import Book, is_parts_folder, partition, shares
from isthmus.partition.book import MAKE
from isthmus.partition.extend import extend, is_grown

Cut = Callable[[Path, int], None]  # (folder, parts): writes the parts folder
DEFAULT_WORKERS = 2
_START = Where("start", "gather", 0, "ids")
LAUNCHERS = ("auto", "ray")


@dataclass(frozen=True)
class Start:
    """The options of starting workers: how many, and by whom."""

    workers: int | None = option(
        None, "Default: one per part (2 if not yet cut); fewer take several each.", "Workers", "train verify", least=1
    )
    launcher: str = option(
        "auto",
        "auto (torchrun, srun, Kubernetes, or this machine), ray.",
        "Workers",
        "train",
        choices=LAUNCHERS,
    )

    def __post_init__(self) -> None:
        check_options(self)


def launch(
    job: Job, source: str, workers: int | None, cut: Cut | None = None, launcher: str = "auto"
) -> dict[str, Any]:
    """Run the job on `source`, a parts folder or what `cut` makes one of; return the summary on every joined worker.

    `launcher` is "auto": joined to those that torchrun, srun or Kubernetes started, else on this machine; or "ray".
    """
    place = detect()
    Start(workers, launcher)
    _check(job, place)
    _check_launcher(launcher, place)
    if place is not None and place.size > 1:
        _check_count(workers, place)
        return _joined(job, source, place, cut)
    given = is_parts_folder(source)
    count = workers if workers is not None else _usual_workers(job, source, given)
    with _run_folder(job) as job:
        job = replace(job, parts=_parts(job, source, given, count, cut))
        shares(Book.read(job.parts), count)  # refuse before any process is started
        if launcher == "ray":
            return survive(job, lambda job: on_ray.start(job, count))
        return run(job, Hub(1).transport(0)) if count == 1 else survive(job, lambda job: local.start(job, count))


def launch_prediction(
    asked: PredictConfig,
    parts: str | None = None,
    workers: int | None = None,
    **how: Any,
) -> dict[str, Any]:
    """Predict with as many workers as the run had, or as asked; `parts` is the new place of its parts if they moved.

    ``how``: options of `Job`.
    """
    trained = SavedRun.read(asked.run)
    trained.shape(asked.model, asked.trust)  # refuse before any process is started
    asked = asked.suited(trained)
    place = detect()
    joins = place is not None and place.size > 1
    count = trained.workers if workers is None and not joins else workers
    with tempfile.TemporaryDirectory(prefix="isthmus-predict-") as folder:
        if asked.source is None:
            book = trained.book(parts)
        elif joins and not is_parts_folder(asked.source):
            raise InputError(f"{asked.source} is not cut: cut it first with `isthmus partition`, and give its parts")
        else:
            book = _other_graph(asked.source, trained, count or 1, Path(folder) / "parts")
            trained.check_source(book)
        if place is None or place.rank == 0:
            check_files(asked, book)
        job = Job("predict", str(book.folder), trained.config, prediction=asked, **how)
        return launch(job, str(book.folder), count)


def _other_graph(source: str, trained: SavedRun, workers: int, out: Path) -> Book:
    """Return the parts of another graph: as they are, the run's own with nodes added, or cut anew."""
    if is_parts_folder(source):
        return Book.read(source)
    try:
        before = trained.book()
    except InputError:  # the parts of the run are gone
        before = None
    one_way = before is not None and not before.symmetric
    graph = load(source, undirected=not one_way, directed=one_way)
    for text in graph.notes:
        note(text)
    if before is not None and is_grown(graph, before):
        return extend(graph, before, out)
    return partition(graph, workers, out=out)


def _usual_workers(job: Job, source: str, given: bool) -> int:
    """Return the number of workers of the run that is resumed, else one per part."""
    if job.resume and job.out is not None:
        check_folder(Path(job.out), resume=True)
        return workers_of(Path(job.out))
    return Book.read(source).num_parts if given else DEFAULT_WORKERS


def _check(job: Job, place: Place | None) -> None:
    """Refuse what can be refused before any work is done."""
    job.check()
    if job.tensorboard and (place is None or place.rank == 0):
        events.check_available()
    if place is None or place.rank == 0:
        read_names(job.track)


def _check_launcher(launcher: str, place: Place | None) -> None:
    if launcher == "ray":
        on_ray.check_available()
        if place is not None and place.size > 1:
            raise InputError(f"{place.launcher} has already started {place.size} workers: leave --launcher ray out")


def _check_count(workers: int | None, place: Place) -> None:
    """Refuse a number of workers that differs from what the launcher has started."""
    if workers not in (None, place.size):
        raise InputError(
            f"--workers {workers}, but {place.launcher} has started {place.size}: leave --workers out, or let "
            f"{place.launcher} start {workers}"
        )


def _joined(job: Job, source: str, place: Place, cut: Cut | None) -> dict[str, Any]:
    given, job = is_parts_folder(source), replace(job, threads=job.threads or place.threads)
    if place.restarted and job.out is not None and (Path(job.out) / "config.json").exists():
        job = replace(job, resume=True)
    if not given and job.out is None:
        raise InputError(f"{source} is not a parts folder: {MAKE}; or give an --out that all workers can read")
    with _run_folder(job, place.restarted) if place.rank == 0 else nullcontext(job) as job:
        if place.rank == 0 and job.kind == "train":
            _parts(job, source, given, place.size, cut)
        return _with_others(job, source, place, given)


def _with_others(job: Job, source: str, place: Place, given: bool) -> dict[str, Any]:
    transport = join(place, job.timeout)
    try:
        job = _as_worker_0(job, place, transport)
        job = replace(job, parts=source if given else str(Path(str(job.out)) / "parts"))
        return run(job, transport, place.local_size)
    finally:
        transport.close()


def _as_worker_0(job: Job, place: Place, transport: Transport) -> Job:
    """Return the job as worker 0 has it, which may have chosen the run folder and knows whether a lost run resumes."""
    mine = {"out": job.out or "", "resume": job.resume, "restarted": place.restarted}
    told = [json.loads(words) for words in transport.gather_words(json.dumps(mine), _START)]
    for rank, one in enumerate(told):
        if one["out"] and one["out"] != told[0]["out"]:
            raise InputError(
                f"the workers do not agree: out is {told[0]['out'] or 'not given'} on worker 0 and {one['out']} on "
                f"worker {rank}: start every worker with the same command"
            )
    resume = told[0]["resume"] if any(one["restarted"] for one in told) else job.resume
    return replace(job, out=told[0]["out"] or None, resume=resume)


@contextmanager
def _run_folder(job: Job, restarted: bool = False) -> Iterator[Job]:
    """Give the job with a locked run folder, to which nobody else writes meanwhile; only training has one."""
    if job.kind != "train":
        yield job
        return
    fresh, folder = job.out is None, Path(job.out or free_folder(Path("runs")))
    check_folder(folder, job.resume)
    job = replace(job, out=str(folder))
    with claimed(folder, new=fresh, patient=restarted):
        try:
            yield job
        except KeyboardInterrupt:  # a second Ctrl-C, or one before any worker could receive it
            if not (folder / "config.json").exists():
                raise
            going_on = command_to_go_on(folder, job.config)
            raise Stopped(f"interrupted; to go on from the last checkpoint: {going_on}", 130) from None


def _parts(job: Job, source: str, given: bool, count: int, cut: Cut | None) -> str:
    """Return the parts folder: the source itself, or one made from it inside the run folder."""
    if given or cut is None:
        return str(Book.read(source).folder)  # refuses anything but a parts folder
    folder = Path(str(job.out)) / "parts"
    if not (job.resume and is_parts_folder(folder)):
        forget_parts(folder)
        cut(folder, count)
    return str(folder)


def forget_parts(folder: Path) -> None:
    """Remove parts that a run cut for itself but did not start with."""
    if is_parts_folder(folder):
        shutil.rmtree(folder)


def free_folder(base: Path) -> Path:
    """Make and return a new folder, the first of base/1, base/2, … that does not exist."""
    number = 1
    while True:
        try:
            (base / str(number)).mkdir(parents=True)
            return base / str(number)
        except FileExistsError:
            number += 1
