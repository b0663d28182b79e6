"""Read a run folder. Errors name the damaged file and line; what is not there yet is left out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from isthmus.engine import TrainConfig
from isthmus.engine.run_files import Metrics, RunFacts, Summary
from isthmus.errors import InputError
from isthmus.files import check_types, open_regular, parse_json, read_json
from isthmus.partition import Book
from isthmus.report.run import Run, WorkerLog
from isthmus.report.text import number

_MEND = "mend that line or take it out, or copy the run folder again"


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """Return the runs in the given order, each once, under the shortest names that distinguish them."""
    once = list({Path(folder).resolve(): Path(folder) for folder in folders}.values())
    names = [folder.resolve().name for folder in once]
    return [read_run(f, str(f) if names.count(name) > 1 else name) for f, name in zip(once, names, strict=True)]


def read_run(folder: Path, name: str) -> Run:
    if not folder.exists():
        raise InputError(f"there is no run folder {folder}: give one that `isthmus train --out` has written")
    if not (folder / "config.json").is_file():
        raise InputError(
            f"{folder} is not a run folder (no config.json): give one that `isthmus train --out` has written"
        )
    config = read_object(folder / "config.json", TrainConfig, RunFacts)
    summary = folder / "summary.json"
    book, without_book = _book(folder, config)
    return Run(
        folder,
        name,
        config,
        list(_lines(folder / "metrics.jsonl", Metrics)),
        read_object(summary, Summary) if summary.is_file() else None,
        [_worker(rank, file) for rank, file in _worker_files(folder)],
        book,
        without_book,
    )


def _book(folder: Path, config: dict[str, Any]) -> tuple[Book | None, str]:
    """Return the book of the parts that the run was trained on, or the reason why there is none."""
    parts = Path(str(config.get("parts", folder / "parts")))
    try:
        if not parts.exists() and (folder / "parts").exists():
            parts = folder / "parts"  # the run was moved, and its parts with it
        if not parts.exists():
            return None, f"the parts are gone: {parts} is not there any more"
        return Book.read(parts), ""
    except (InputError, OSError, ValueError) as error:
        return None, str(error)


def _worker_files(folder: Path) -> list[tuple[int, Path]]:
    found = ((re.fullmatch(r"worker-(\d+)\.jsonl", file.name), file) for file in folder.iterdir())
    return sorted((int(match[1]), file) for match, file in found if match)


def _worker(rank: int, file: Path) -> WorkerLog:
    log = WorkerLog(rank)
    for line in _lines(file):
        step, rows = line["step"], 0.0
        for purpose, seconds in _pairs(line.get("seconds")):
            log.seconds[purpose] += number(seconds) or 0.0
        links = line.get("links")
        for link in links if isinstance(links, list) else ():
            if isinstance(link, list) and len(link) == 5 and isinstance(link[0], (int, str)):
                site, direction, _peer, sent, size = link
                log.bytes[site, str(direction)] += number(size) or 0.0
                rows += number(sent) or 0.0
        log.rows[step] = rows
        age = dict(_pairs(line.get("age")))
        mean, oldest = number(age.get("mean")), number(age.get("max"))
        if mean is not None and oldest is not None:
            log.age[step] = mean, oldest
        told = {name: number(value) for name, value in _pairs(line.get("schedule"))}
        if told:
            log.schedule[step] = {name: value for name, value in told.items() if value is not None}
        hidden = number(line.get("hidden"))
        if hidden is not None:
            log.hidden.append(hidden)
    return log


def _pairs(value: Any) -> Sequence[tuple[str, Any]]:
    return list(value.items()) if isinstance(value, dict) else []


def read_object(file: Path, *kinds: type) -> dict[str, Any]:
    """A json object whose values have the types that the dataclasses say."""
    content = read_json(file, _MEND)
    if not isinstance(content, dict):
        raise InputError(f"{file}, line 1: not a json object: {_MEND}")
    for kind in kinds:
        check_types(kind, content, str(file), _MEND)
    return content


def _lines(file: Path, kind: type | None = None) -> Iterator[dict[str, Any]]:
    """Yield the lines of a .jsonl file, each with its step; none if it is not there yet."""
    if not file.is_file():
        return
    with open_regular(file, _MEND) as lines:
        for place, line in enumerate(lines, 1):
            try:
                content = parse_json(line.strip(), str(file), _MEND, place)
            except InputError:
                if not line.endswith(b"\n"):
                    return  # the run is writing it just now, or was ended while it did
                raise
            if not isinstance(content, dict) or not isinstance(content.get("step"), int):
                raise InputError(f"{file}, line {place}: not a json object with a step: {_MEND}")
            if kind is not None:
                check_types(kind, content, f"{file}, line {place}", _MEND)
            yield content
