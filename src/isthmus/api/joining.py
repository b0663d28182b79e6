"""Connect a worker that a launcher started, or a single process, with the others and with its parts."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from isthmus.api.source import Cut, name_of
from isthmus.comm import Transport, Where
from isthmus.device import pick
from isthmus.errors import InputError
from isthmus.launch.job import join
from isthmus.launch.place import Place, detect, local_rank, threads_for
from isthmus.local import Policy
from isthmus.partition import Book, is_parts_folder

_WHERE = Where("start", "gather", 0, "ids")


def check_own_loop(recipe: str, policy: Policy) -> None:
    """Refuse a recipe whose steps a loop of one's own cannot make."""
    if policy.batches is not None:
        raise InputError(
            f"{recipe} makes mini-batches, for isthmus.train: a loop of your own takes them from "
            "isthmus.NeighborLoader, or a full-graph recipe"
        )
    if policy.isolated:
        raise InputError(f"{recipe} weighs the loss of every row, in isthmus.train: take another recipe")


@dataclass(frozen=True)
class Joined:
    """The links of this worker to the others, and the parts that they share."""

    transport: Transport
    book: Book
    temporary: Path | None = None

    def close(self) -> None:
        self.transport.close()
        if self.temporary is not None:
            shutil.rmtree(self.temporary, ignore_errors=True)


def joined(
    source: Any,
    cut: Cut,
    parts: str | os.PathLike[str] | None,
    asked: Mapping[str, Any],
    transport: Transport | None,
) -> Joined:
    """Join the workers of torchrun or srun; worker 0 cuts a source that is not yet cut and tells the others where.

    ``asked``: threads, timeout and device.
    """
    if transport is None:
        place = detect() or Place(0, 1, "", 0, 1, "none")
    else:
        place = Place(transport.rank, transport.size, "", 0, transport.size, "given")
    if place.size > 1 or asked["threads"] is not None:
        torch.set_num_threads(threads_for(place.local_size, asked["threads"]))
    given = is_parts_folder(name_of(source))
    folder, temporary = (name_of(source), None) if given else _cut(source, cut, parts, place)
    links = transport or join(place, asked["timeout"])
    try:
        links.use(pick(asked["device"], local_rank(place.rank, place.local_size)))
        folder = _told_folder(given, folder, links)
        return Joined(links, Book.read(folder), temporary)
    except BaseException:
        links.close()
        raise


def _told_folder(given: bool, folder: str, links: Transport) -> str:
    """Return the parts folder of this worker; if the parts were cut just now, worker 0 tells the others where."""
    told = [json.loads(words) for words in links.gather_words(json.dumps([given, folder]), _WHERE)]
    for rank, (cut_before, _) in enumerate(told):
        if cut_before != told[0][0]:
            first, other = ("a parts folder" if one else "not yet cut" for one in (told[0][0], cut_before))
            raise InputError(
                f"the workers do not agree: the source is {first} on worker 0 and {other} on worker {rank}: "
                "give every worker the same source"
            )
    return folder if given else told[0][1]


def _cut(source: Any, cut: Cut, parts: str | os.PathLike[str] | None, place: Place) -> tuple[str, Path | None]:
    """Cut the parts on worker 0; return their folder, and the temporary folder to remove at the end, if any."""
    if parts is None and place.local_size < place.size:
        raise InputError(
            f"{name_of(source)} is not a parts folder: cut it first with isthmus.partition, "
            "or say where with parts=DIR, a folder that all machines can read"
        )
    if place.rank != 0:
        return "", None
    if parts is not None:
        if is_parts_folder(parts):
            raise InputError(f"{parts} is already cut: give it as the source, or another folder for parts")
        cut(Path(parts), place.size)
        return str(Path(parts).absolute()), None
    temporary = Path(tempfile.mkdtemp(prefix="isthmus-"))
    try:
        cut(temporary / "parts", place.size)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return str(temporary / "parts"), temporary
