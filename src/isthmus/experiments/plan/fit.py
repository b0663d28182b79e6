"""Check whether workers fit into the memory of their machines, and say what to do if not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from isthmus.device import every_device, free_memory
from isthmus.engine import TrainConfig
from isthmus.engine.config import DTYPES
from isthmus.errors import InputError
from isthmus.experiments.plan.memory import available, bytes_of, written
from isthmus.kernels.host_rows import BLOCK_BYTES
from isthmus.partition import Book, shares


def worker_memory(book: Book, parts: Iterable[int], tensors: int, process: int) -> int:
    """Return the bytes of a worker: the process, the files of its parts (structure, features, labels), its tensors."""
    return process + sum(book.parts[k].bytes for k in parts) + tensors


def fullest(memory: Sequence[int], machine: Sequence[int]) -> int:
    """Return the bytes on the fullest machine; `machine` gives the machine of each worker."""
    totals = dict.fromkeys(machine, 0)
    for size, where in zip(memory, machine, strict=True):
        totals[where] += size
    return max(totals.values())


def check_floor(config: TrainConfig, book: Book, machine: Sequence[int], limit: int | None) -> None:
    """Refuse, before any work, what no recipe can make fit: the parts, and the rows of every layer for its gradient."""
    shape = config.model
    per_node = DTYPES[config.dtype].itemsize * (shape.hidden * (shape.layers - 1) + book.classes)
    floor = [
        worker_memory(book, parts, per_node * sum(book.parts[k].inner for k in parts), 0)
        for parts in shares(book, len(machine))
    ]
    if limit is not None and fullest(floor, machine) > limit:
        raise too_large("any recipe", fullest(floor, machine), limit)
    here = available()
    if here is not None and sum(floor) > here:
        raise InputError(
            f"a plan rehearses all {len(floor)} workers in one process, which takes {written(sum(floor))} at least, "
            f"and {written(here)} are left: plan on a machine with more memory, or on a smaller graph of this kind"
        )


@dataclass(frozen=True)
class OnDevice:
    """The bytes of a worker on its accelerator: edges, rows, weights and all that a step makes.

    Features stay there as they are and aggregated, unless they are left on the host: then a block of them is there.
    """

    features_there: int
    features_on_host: int

    @staticmethod
    def of(config: TrainConfig, book: Book, parts: Iterable[int], tensors: int) -> OnDevice:
        """Estimate it for the worker of some parts, whose step was seen to make ``tensors`` bytes."""
        parts = list(parts)
        there = worker_memory(book, parts, tensors, 0)
        features = 2 * sum(book.parts[k].inner for k in parts) * book.features * DTYPES[config.dtype].itemsize
        return OnDevice(there, max(0, there - features) + min(features, 2 * BLOCK_BYTES))

    def needed(self, config: TrainConfig) -> int:
        return self.features_on_host if config.features_on == "host" else self.features_there


def device_limit(asked: str | None) -> int | None:
    """Return the memory of a worker's accelerator: as asked, or the least that one of this machine has free."""
    if asked is not None:
        return bytes_of(asked)
    found = [memory[0] for device in every_device() if (memory := free_memory(device)) is not None]
    return min(found, default=None)


def too_large_for_device(what: str, needs: OnDevice, config: TrainConfig, limit: int) -> InputError:
    away = f", or give --features-on host ({written(needs.features_on_host)})" if config.features_on != "host" else ""
    return InputError(
        f"{what} needs {written(needs.needed(config))} on an accelerator and there are {written(limit)}: cut into more "
        f"--parts{away}, or a smaller --hidden"
    )


def too_large(what: str, needs: int, limit: int) -> InputError:
    return InputError(
        f"{what} needs {written(needs)} on a machine and there are {written(limit)}: cut into more --parts, use more "
        "--hosts, send and keep --rows-dtype bf16, or a smaller --hidden"
    )
