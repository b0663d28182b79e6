"""Compare recipes: the same parts, the same initial weights for each seed, in turns.

A comparison is a folder: ``compare.json`` (the request), ``parts/`` if the graph was not cut before, and a run folder
``LABEL/seed-K`` for every run; a run that failed leaves ``failed.json`` there.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from isthmus.device import AUTO
from isthmus.engine import TrainConfig
from isthmus.engine.record import check_writable, write_json
from isthmus.errors import InputError, Stopped, WorkerError
from isthmus.files import read_json
from isthmus.launch import local
from isthmus.launch.claim import claimed
from isthmus.launch.job import Job
from isthmus.launch.place import detect
from isthmus.launch.start import forget_parts
from isthmus.partition import Book, is_parts_folder, shares
from isthmus.recipes.parse import Entry, turns
from isthmus.testbed import Testbed, bits_per_second, measure, tools, written

Cut = Callable[[Path, int], None]  # (folder, parts): writes the parts folder
Tell = Callable[[str], None]
ASKED = "compare.json"
DEFAULT_WORKERS = 4
MAY_CHANGE = ("recipes", "seeds", "measured")  # between a comparison and its resumption


@dataclass(frozen=True)
class CompareRequest:
    """The request for a comparison. ``config`` holds for every run, except for its recipe, options and seed."""

    entries: Sequence[Entry]
    config: TrainConfig
    seeds: int = 3
    workers: int | None = None
    link: str | None = None
    """The rate of the links of a testbed, such as 300mbit; None: the workers are processes of this machine."""
    hosts: int | None = None
    """The number of hosts of the testbed, each of which has a block of workers. None: one for each worker."""
    threads: int | None = None
    timeout: float = 300.0
    device: str = AUTO

    def __post_init__(self) -> None:
        least = {"seeds": self.seeds, "workers": self.workers, "hosts": self.hosts, "threads": self.threads}
        for name, value in least.items():
            if value is not None and value < 1:
                raise InputError(f"{name} must be at least 1, not {value}")
        if self.timeout <= 0:
            raise InputError(f"timeout must be above 0 seconds, not {self.timeout:g}")
        if self.link is not None:
            bits_per_second(self.link)
        elif self.hosts is not None:
            raise InputError("--hosts are those of a testbed: give --link RATE too")


def compare(
    asked: CompareRequest,
    source: str,
    folder: Path,
    cut: Cut | None,
    *,
    resume: bool = False,
    tell: Tell | None = None,
    new: bool = False,
) -> int:
    """Do every run that is not done yet; return how many failed. ``cut`` makes parts of a source that has none.

    ``new``: the folder was made for this comparison, and is removed if it comes to nothing.
    """
    if detect() is not None:
        raise InputError("compare starts its own workers: run it without torchrun or srun")
    _check_folder(folder, resume)
    with claimed(folder, new):
        return _compare(asked, source, folder, cut, resume, tell or (lambda text: None))


def _compare(asked: CompareRequest, source: str, folder: Path, cut: Cut | None, resume: bool, tell: Tell) -> int:
    linked = asked.link is not None and not all(_finished(run, True) for _, _, run in _turns(asked, folder))
    if linked:
        tools.check()
    book = _parts(asked, source, folder, cut)
    count = asked.workers or (_earlier(folder).get("workers") if resume else None) or book.num_parts
    shares(book, count)  # refused before any process is started
    asked = replace(asked, workers=count)
    hosts = asked.hosts or count
    if hosts > count:
        raise InputError(f"{hosts} hosts but {count} workers: give at most --hosts {count}")
    record = _asked(asked, book, hosts)
    if resume:
        record["measured"] = _check_same(folder, record).get("measured")
    write_json(folder / ASKED, record)
    with Testbed(hosts, str(asked.link)) if linked else nullcontext() as testbed:
        if testbed is not None and hosts > 1:
            record["measured"] = measure(testbed)
            tell(f"links of {written(testbed.rate)}: a plain TCP stream reaches {written(record['measured'])}")
            write_json(folder / ASKED, record)
        return sum(not done for done in _runs(asked, book, folder, testbed, tell))


def _runs(asked: CompareRequest, book: Book, folder: Path, testbed: Testbed | None, tell: Tell) -> Iterator[bool]:
    """Yield whether each run has ended well, as the runs end."""
    total = len(asked.entries) * asked.seeds
    for place, (seed, entry, run) in enumerate(_turns(asked, folder), 1):
        title = f"{place}/{total} {entry.label}, seed {seed}"
        if _finished(run, asked.link is not None):
            tell(f"{title}: done before")
            yield True
            continue
        if run.exists():
            shutil.rmtree(run)  # half-done or failed: its times would be those of two starts
        config = replace(asked.config, recipe=entry.recipe, options=entry.options, seed=seed)
        job = Job("train", str(book.folder), config, str(run), False, asked.threads, asked.timeout, asked.device, True)
        try:
            summary = local.start(job, asked.workers or book.num_parts, testbed)
        except Stopped as end:
            raise Stopped(f"stopped during {title}: --resume repeats it and does those after it", end.status) from end
        except (InputError, WorkerError) as error:
            run.mkdir(parents=True, exist_ok=True)
            write_json(run / "failed.json", {"error": str(error)})
            tell(f"{title}: failed: {error}")
            yield False
        else:
            score, median = summary["test"]["score"], summary["step_seconds"]["median"]
            judged = "" if score is None else f"test {score:.4f}, "
            tell(f"{title}: {judged}{median * 1e3:.1f} ms per step")
            yield True


def _turns(asked: CompareRequest, folder: Path) -> Iterator[tuple[int, Entry, Path]]:
    """Yield every run in its order: seed, entry, run folder."""
    for seed, entry in turns(asked.entries, asked.seeds):
        yield seed, entry, folder / entry.folder / f"seed-{seed}"


def _finished(run: Path, linked: bool) -> bool:
    try:
        summary = read_json(run / "summary.json", "")
    except InputError:
        return False
    return isinstance(summary, dict) and (not linked or "link" in summary)


def _check_folder(folder: Path, resume: bool) -> None:
    if resume and not (folder / ASKED).exists():
        raise InputError(f"{folder} holds no comparison to resume: leave --resume out, or give the comparison's --out")
    if not resume and folder.is_dir() and {path.name for path in folder.iterdir()} - {"parts"}:
        again = ", or --resume to go on with it" if (folder / ASKED).exists() else ""
        raise InputError(f"{folder} is not empty: give another --out{again}")
    check_writable(folder)


def _parts(asked: CompareRequest, source: str, folder: Path, cut: Cut | None) -> Book:
    """Return the parts that all runs share: the source itself, or those made from it inside the folder, once."""
    parts = Path(source) if cut is None or is_parts_folder(source) else folder / "parts"
    if cut is not None and parts != Path(source) and not (folder / ASKED).exists():
        forget_parts(parts)
    if cut is not None and not is_parts_folder(parts):
        cut(parts, asked.workers or DEFAULT_WORKERS)
    return Book.read(parts)


def _asked(asked: CompareRequest, book: Book, hosts: int) -> dict[str, Any]:
    """Return the content of compare.json."""
    config = {k: v for k, v in asked.config.as_dict().items() if k not in ("recipe", "options", "seed")}
    return {
        "graph": book.name,
        "parts": book.fingerprint,
        "workers": asked.workers,
        "threads": asked.threads,
        "device": asked.device,
        "link": asked.link,
        "hosts": hosts if asked.link else None,
        "config": config,
        "recipes": [{"label": entry.label, "recipe": entry.recipe, "folder": entry.folder} for entry in asked.entries],
        "seeds": asked.seeds,
    }


def _earlier(folder: Path) -> dict[str, Any]:
    """Return the content of compare.json of an earlier start."""
    found = read_json(folder / ASKED, "give another --out")
    if not isinstance(found, dict):
        raise InputError(f"{folder / ASKED} is damaged: give another --out")
    return found


def _check_same(folder: Path, record: dict[str, Any]) -> dict[str, Any]:
    """Return the earlier record; refuse one with other settings, since the runs could not be compared."""
    earlier = _earlier(folder)
    try:
        pairs = [(name, record[name], earlier[name]) for name in record if name not in (*MAY_CHANGE, "config")]
        pairs += [(name, value, earlier["config"].get(name)) for name, value in record["config"].items()]
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{folder / ASKED} is damaged ({error}): give another --out") from error
    changed = ", ".join(name for name, now, before in pairs if now != before)
    if changed:
        raise InputError(f"{folder} was begun with other settings of {changed}: repeat them, or give another --out")
    return earlier
