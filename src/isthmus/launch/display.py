"""What a person sees while workers train: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from isthmus.comm import Transport
from isthmus.engine import TrainConfig
from isthmus.partition import Book


@contextmanager
def counting(title: str, transport: Transport) -> Iterator[Callable[[int, int], None] | None]:
    """Shows how much of known work is done, (done, total), on worker 0 only."""
    console = Console(file=sys.stderr)
    if transport.rank != 0:
        yield None
    elif not console.is_terminal:
        print(title, file=sys.stderr, flush=True)
        yield None
    else:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console) as bar:
            task = bar.add_task(title, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)


class Display:
    """Shows the metrics of a run, on worker 0 only."""

    def __init__(self, config: TrainConfig, book: Book, transport: Transport, quiet: bool = False):
        self.config, self.silent = config, quiet or transport.rank != 0
        self.console = Console(file=sys.stderr)
        self.title = f"{book.name}: {config.recipe}, {config.model.model}, {transport.size} worker(s)"
        self.bar: Progress | None = None
        self.scores: dict[str, float] = {}
        self.begun = time.perf_counter()

    def __enter__(self) -> Display:
        if not self.silent and self.console.is_terminal:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[state]}"),
                TimeRemainingColumn(),
            )
            self.bar = Progress(*columns, console=self.console)
            self.bar.start()
            self.task = self.bar.add_task(self.title, total=self.config.steps, state="")
        elif not self.silent:
            print(self.title, file=sys.stderr, flush=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def note(self, text: str) -> None:
        """What a person should know of, also one who asked for no progress."""
        self.console.print(f"note: {escape(text)}", soft_wrap=True, highlight=False)

    def show(self, line: dict[str, Any]) -> None:
        if self.silent:
            return
        evaluated = "val" in line
        if evaluated:
            self.scores = {name: line[name] for name in ("train", "val", "test")}
        state = f"loss {line['loss']:.4f}" + "".join(f"  {name} {score:.4f}" for name, score in self.scores.items())
        if self.bar is not None:
            self.bar.update(self.task, completed=line["step"], state=state)
        elif evaluated:
            seconds = time.perf_counter() - self.begun
            text = f"step {line['step']:>5}  {state}  {line['seconds'] * 1e3:.0f} ms/step  {seconds:.1f} s"
            print(text, file=sys.stderr, flush=True)
