"""Learnt rows of nodes in a run: made where a graph has no features, kept in its checkpoints, shard by shard.

A shard's file names the book ids of its rows, so a run goes on, and predicts, with another number of workers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from isthmus.comm import Transport
from isthmus.engine import checkpoint
from isthmus.engine.config import DTYPES, TrainConfig
from isthmus.errors import InputError
from isthmus.features.embedding import Embedding
from isthmus.local import Policy
from isthmus.partition import Book, Part, shares
from isthmus.shard.load import as_tensor

_NAME = "nodes"  # of the table of a run
_BEST = "best"  # the rows of the best step, beside those of the last


def input_width(book: Book, policy: Policy) -> int:
    """Return the width of the rows that a model reads: features or, where there are none, learnt rows."""
    learnt = None if policy.batches is None else policy.batches.embedding
    if book.features or learnt is None:
        if not book.features:
            raise InputError(
                f"{book.name} has no features (x), which this recipe needs: give some, or let every node learn a row, "
                "with --recipe distdgl"
            )
        return book.features
    return learnt.width


def make_table(part: Part, book: Book, config: TrainConfig, policy: Policy, transport: Transport) -> Embedding | None:
    """Return this worker's shard of the learnt rows, None if the graph has features."""
    if book.features or policy.batches is None or policy.batches.embedding is None:
        return None
    asked, dtype = policy.batches.embedding, DTYPES[config.dtype]
    return Embedding(asked, as_tensor(part.nodes), config.seed, dtype, transport.size)


def own_range(book: Book, transport: Transport) -> tuple[int, int]:
    """Return the book ids of this worker's nodes, from the first to before the last."""
    block = shares(book, transport.size)[transport.rank]
    return book.ranges[block.start], book.ranges[block.stop]


class RunRows:
    """The rows that this worker's nodes learn in a run, and those of the best step."""

    def __init__(self, table: Embedding, own: tuple[int, int]):
        self.table, self.own, self.best = table, own, table.rows.clone()

    @staticmethod
    def of(table: Embedding | None, own: tuple[int, int]) -> RunRows | None:
        return None if table is None else RunRows(table, own)

    def words(self, graph: str) -> str:
        """Return what a user should know."""
        width = self.table.width
        return f"{graph} has no features: every node learns a row of {width} numbers (--set embedding=, embedding_lr=)"

    def keep_best(self) -> None:
        self.best = self.table.rows.clone()

    def use_best(self) -> None:
        self.table.rows.copy_(self.best)

    def save(self, run: Path, step: int) -> None:
        """Write this worker's share of a checkpoint."""
        save_rows(run, step, self.own, {_NAME: {**self.table.state_dict(), _BEST: self.best}})

    def restore(self, run: Path, step: int) -> None:
        """Go on from a checkpoint, of any number of workers."""
        saved = read_rows(run, step, self.own)
        with checkpoint.fitting(checkpoint.folder_of(run, step)):
            tensors = saved[_NAME]
            self.best = tensors.pop(_BEST)
            self.table.load_state_dict(tensors, step)


def save_rows(run: Path, step: int, own: tuple[int, int], tables: Mapping[str, Mapping[str, Tensor]]) -> None:
    """Write a worker's shards of learnt tables, each with its tensors, before `checkpoint.save` publishes them."""
    tensors = {f"{table}/{name}": one for table, some in tables.items() for name, one in some.items()}
    with checkpoint.building(run, step) as folder:
        file = folder / f"rows-{own[0]}-{own[1]}.safetensors"
        save_file({name: one.detach().contiguous().clone() for name, one in tensors.items()}, file)


def read_rows(run: Path, step: int, own: tuple[int, int]) -> dict[str, dict[str, Tensor]]:
    """Return the rows of some nodes (book ids) of all learnt tables, from whatever shards they were written in."""
    folder, (first, last) = checkpoint.folder_of(run, step), own
    found = sorted(
        (int(match[1]), int(match[2]), file)
        for file in folder.glob("rows-*.safetensors")
        if (match := re.fullmatch(r"rows-([0-9]{1,15})-([0-9]{1,15})\.safetensors", file.name))
    )
    if not found:
        return {}
    pieces: dict[str, list[Tensor]] = {}
    at = first
    with checkpoint.fitting(folder):
        for begin, end, file in found:
            low, high = max(at, begin), min(last, end)
            if low > at or low >= high:
                continue
            with safe_open(file, "pt") as tensors:
                for name in tensors.keys():  # noqa: SIM118, not a dict
                    some = tensors.get_slice(name)
                    if some.get_shape()[0] != end - begin:
                        raise ValueError("rows are missing")
                    pieces.setdefault(name, []).append(some[low - begin : high - begin])
            at = high
        if at < last:
            raise ValueError("rows are missing")
        tables: dict[str, dict[str, Tensor]] = {}
        for name, parts in pieces.items():
            table, _, tensor = name.rpartition("/")
            tables.setdefault(table, {})[tensor] = torch.cat(parts)
    return tables
