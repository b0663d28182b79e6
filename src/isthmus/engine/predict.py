"""Predict class, score and embedding of every node on the parts, and write them in original ids.

The output goes through worker 0 in blocks: for the next rows of the file every worker sends those that it owns, and
worker 0 writes them. So no process holds more than its part and one block, one process writes the file front to back,
and the workers need no shared file system.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from isthmus.comm import Transport, Where
from isthmus.device import on_host
from isthmus.engine import checkpoint, step
from isthmus.engine.agreement import check_weights
from isthmus.engine.gather import OwnRows
from isthmus.engine.learnt import RunRows, own_range
from isthmus.engine.node_list import read_nodes
from isthmus.engine.prediction_csv import CsvTable
from isthmus.engine.predictions import (
    SUFFIXES,
    TABLES,
    WHAT,
    Arrays,
    Column,
    Known,
    Table,
    as_bytes,
    block_rows,
    columns,
    id_column,
    pyarrow,
    targets,
)
from isthmus.engine.prepare import Views
from isthmus.engine.record import check_writable, memory_peak_bytes, over_workers
from isthmus.engine.sampled import neighbourhoods, sampled_logits
from isthmus.engine.saved_run import SavedRun
from isthmus.errors import InputError
from isthmus.files.atomic import check_free, files_at_once
from isthmus.local import Policy
from isthmus.minibatch import read_fanouts
from isthmus.nn import Model, distribute
from isthmus.options import option
from isthmus.partition import Book, shares
from isthmus.tasks.losses import pairs_of
from isthmus.tasks.task import Task

WANTED = Where("nodes asked for", "gather", 0, "ids")
USUAL = ("class", "score")
_WRITERS: dict[str, type[Arrays | Table | CsvTable]] = {".npy": Arrays, ".parquet": Table, ".csv": CsvTable}
Progress = Callable[[int, int], None]  # (rows written, total rows)


@dataclass(frozen=True)
class PredictConfig:
    """The options of a prediction: which run's best weights, what to write of which nodes, and where to."""

    run: str
    out: str
    """The output file; its suffix chooses the format: .npy, .parquet or .csv."""
    what: tuple[str, ...] = option(
        USUAL,
        "{choices}: several by comma; default class,score.",
        "Run",
        "predict",
        choices=WHAT,
        accepts="str | Sequence[str]",
    )
    nodes: str | None = option(
        None,
        "Only these, in this order: original ids, one per line or .npy.",
        "Run",
        "predict",
        accepts="str | os.PathLike[str] | None",
    )
    fanout: str | None = option(None, "Draw neighbours per hop instead of reading all, as 15,10,5.", "Run", "predict")
    """Drawn with the run's seed; the same for any number of workers."""
    overwrite: bool = option(False, "Replace existing files.", "Run", "predict")
    model: str | None = option(
        None,
        "The run's own model, named again: package.module:Net.",
        "Model",
        "predict",
        accepts="str | type[nn.Module] | Callable[..., nn.Module] | None",
    )
    source: str | None = option(
        None,
        "Another graph to score, cut or not, such as the run's own after nodes and edges were added.",
        "Run",
        "predict",
        accepts="str | os.PathLike[str] | None",
    )
    trust: bool = option(False, "Import the model that the run folder names.", "Model", "predict")

    def __post_init__(self) -> None:
        if Path(self.out).suffix not in SUFFIXES:
            raise InputError(
                f"{self.out} has no known format: let --out end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
            )
        unknown = [name for name in self.what if name not in WHAT]
        if unknown or not self.what:
            raise InputError(
                f"cannot predict {', '.join(unknown) or 'nothing'} of a node: --what takes {', '.join(WHAT)}"
            )
        object.__setattr__(self, "what", tuple(dict.fromkeys(self.what)))
        if self.fanout is not None:
            read_fanouts(self.fanout)

    @property
    def parquet(self) -> bool:
        return Path(self.out).suffix == ".parquet"

    @property
    def table(self) -> bool:
        """Whether the output is one table with a row per node, not an array per column."""
        return Path(self.out).suffix in TABLES

    def targets(self, book: Book) -> list[Path]:
        return targets(Path(self.out), self.columns(book), ids=book.has_ids)

    def suited(self, trained: SavedRun) -> PredictConfig:
        """Return what is asked of a run: one that has learnt from edges alone gives embeddings and nothing else."""
        if pairs_of(trained.config.loss) is None or self.what == ("embedding",):
            return self
        if self.what != USUAL:
            raise InputError(f"{self.run} has learnt embeddings, no classes: --what takes embedding")
        return replace(self, what=("embedding",))

    def columns(self, book: Book) -> tuple[str, ...]:
        """Return what is predicted: by default class and score, of a regression the value."""
        what = ("value",) if book.regression and self.what == USUAL else self.what
        unsuited = [name for name in what if name != "embedding" and (name == "value") != book.regression]
        if unsuited:
            has = "values, not classes: --what takes value, embedding" if book.regression else "classes, not values"
            raise InputError(f"cannot predict {unsuited[0]}: {book.name} has {has}")
        return what


def check_files(asked: PredictConfig, book: Book) -> np.ndarray | None:
    """Refuse outputs that cannot be written and unknown nodes; return the nodes asked for, None for all."""
    check_free(asked.targets(book), replace=asked.overwrite)
    check_writable(Path(asked.out).parent)
    if asked.parquet:
        pyarrow()
    return None if asked.nodes is None else read_nodes(Path(asked.nodes), book)


def predict(
    book: Book,
    asked: PredictConfig,
    transport: Transport,
    *,
    policy: Policy | None = None,
    model: nn.Module | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Predict on this worker's part together with the others; every worker calls it with the same arguments.

    ``policy`` is that of the run's recipe, whose exact savings decide the order of sums; ``model`` is needed for a run
    with a user's own model. The whole graph is used, also after inductive training. Returns a summary when the files
    are complete.
    """
    begun = time.perf_counter()
    trained = SavedRun.read(asked.run)
    if asked.source is None:
        trained.check(book)
    else:
        trained.check_source(book)
    asked = asked.suited(trained)
    what, embeds = asked.columns(book), pairs_of(trained.config.loss) is not None
    parts = shares(book, transport.size)[transport.rank]
    nodes = check_files(asked, book) if transport.rank == 0 else None
    net = distribute(trained.model(book, model, asked.model, asked.trust))
    check_weights(transport, net)
    net.to(transport.device)
    last = _last_conv(net, asked) if "embedding" in what and not embeds else None
    dense = not isinstance(net, Model)
    config = replace(
        trained.config, loss=trained.config.loss if embeds else None, metric=None, hosts=None
    )  # a run may name code that nobody asked for
    view = Views.of(book, config, _by_halo(policy or Policy()), transport, dense).scored[-1]  # the view of all nodes
    if view.learnt is not None:
        if asked.source is not None:
            raise InputError(f"{asked.run} has learnt rows for the nodes of its own graph alone: leave --source out")
        learnt = RunRows(view.learnt, own_range(book, transport))
        learnt.restore(Path(asked.run), checkpoint.steps(Path(asked.run))[-1])
        learnt.use_best()
    own_nodes = view.graph.nodes[: view.graph.num_inner]  # under a vertex-cut, mirrors follow
    turns: Iterator[Tensor]
    if asked.fanout is None:
        turns = (step.predict(net, view, at) for at in [trained.best_step])  # all nodes at once
    else:
        drawn = neighbourhoods(net, view, book, read_fanouts(asked.fanout), config.seed)
        turns = sampled_logits(net, view, drawn, torch.arange(len(view.data.y)))
    logits, embeddings = (rows[: len(own_nodes)] for rows in _forward(turns, last))
    embeddings = logits if embeds else embeddings
    chosen = columns(
        what, Task(Task.of(book).kind, trained.classes or book.classes), embeddings.shape[1], one_score=asked.table
    )
    names = torch.empty(len(logits), 0)
    if book.has_ids:
        ids = np.concatenate([book.ids(k) for k in parts])
        names, chosen = as_bytes(ids), [id_column(ids.dtype), *chosen]
    own = OwnRows(on_host(own_nodes).numpy(), Known(logits, embeddings, names), transport)
    rows = _write(own, chosen, asked, book, nodes, progress or (lambda done, total: None))
    memory = float(over_workers([memory_peak_bytes()], transport).sum())
    return {
        "run": asked.run,
        "graph": book.name,
        "workers": transport.size,
        "step": trained.best_step,
        "rows": rows,
        "what": list(what),
        "files": [str(path) for path in asked.targets(book)],
        "seconds": round(time.perf_counter() - begun, 6),
        "memory_peak_bytes": round(memory),
    }


def _by_halo(policy: Policy) -> Policy:
    """Return the policy without covers: the order of a node's sums is then a matter of its neighbours alone."""
    return replace(policy, savings=replace(policy.savings, cover=False))


def _last_conv(model: nn.Module, asked: PredictConfig) -> nn.Module:
    """Return the convolution whose input is the embedding."""
    if not isinstance(model, Model):
        raise InputError("the embedding of your own model is not known: leave embedding out of --what")
    if len(model.convs) == 1:
        raise InputError(f"the one convolution of {asked.run} reads the features: leave embedding out of --what")
    return model.convs[-1]


def _forward(turns: Iterator[Tensor], last: nn.Module | None) -> tuple[Tensor, Tensor]:
    """Return the logits [n, C] of all turns, and the input of the convolution `last` [n, H], or [n, 0] for none."""
    entered: list[Tensor] = []
    hooks = [] if last is None else [last.register_forward_pre_hook(lambda _, given: entered.append(given[1]))]
    pieces = []
    try:
        for logits in map(on_host, turns):
            inside = on_host(entered.pop()[: len(logits)]) if entered else logits.new_empty(len(logits), 0)
            pieces.append((logits, inside))
    finally:
        for hook in hooks:
            hook.remove()
    return torch.cat([logits for logits, _ in pieces]), torch.cat([inside for _, inside in pieces])


def _write(
    rows: OwnRows, chosen: list[Column], asked: PredictConfig, book: Book, nodes: np.ndarray | None, progress: Progress
) -> int:
    """Write the rows of all nodes, or of those given to worker 0, block by block; return how many."""
    transport, size, total = rows.transport, block_rows(chosen), book.nodes
    if asked.nodes is not None:
        total = int(transport.all_reduce(torch.tensor([0 if nodes is None else len(nodes)]), WANTED))

    def blocks() -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
        for start in range(0, total, size):
            end = min(start + size, total)
            block = np.arange(start, end) if asked.nodes is None else _from_first(nodes, start, end, transport)
            yield block, rows.gather(block, chosen)
            progress(end, total)

    if transport.rank != 0:
        for _ in blocks():
            pass  # sends its rows to worker 0
        return total
    try:
        with files_at_once(asked.targets(book), replace=asked.overwrite) as paths:
            file = _WRITERS[Path(asked.out).suffix](paths, chosen, total)
            for block, values in blocks():
                file.append(block, values)
            file.close()
    except OSError as error:
        raise InputError(f"cannot write {asked.out} ({error}): check the free space, or give another --out") from error
    return total


def _from_first(nodes: np.ndarray | None, start: int, end: int, transport: Transport) -> np.ndarray:
    """Return worker 0's nodes for these rows, on every worker."""
    mine = np.empty(0, np.int64) if nodes is None else nodes[start:end].astype(np.int64)
    return torch.cat(transport.all_gather(torch.from_numpy(mine), WANTED)).numpy()
