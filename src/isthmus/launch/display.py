"""Show the progress of training: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from isthmus.comm import Transport
from isthmus.console import Teller
from isthmus.engine import TrainConfig
from isthmus.launch.throughput import Throughput, clock
from isthmus.partition import Book


@contextmanager
def counting(title: str, transport: Transport) -> Iterator[Callable[[int, int], None] | None]:
    """Show how much of a known amount of work is done, (done, total), on worker 0 only."""
    console = Teller(stderr=True)
    if transport.rank != 0:
        yield None
    elif not console.is_terminal:
        console.print(title, soft_wrap=True, highlight=False, markup=False)
        yield None
    else:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console) as bar:
            task = bar.add_task(title, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)


class Display:
    """A display of the metrics of a run, on worker 0 only.

    On a terminal it shows

        flickr@0.1: exact, sage, 3 worker(s)
        ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╺━━━━━━━━━━━ 160/200 0:02 left
        loss 0.9123  train 0.7012  val 0.6544  test 0.6501
        45.2 ms/step: compute 20.1, wait 22.0, sample 0.1, reduce 3.0; 1.2 MiB sent

    and elsewhere a line per evaluation. Times and bytes are those of worker 0, means over its last steps.
    """

    def __init__(
        self,
        config: TrainConfig,
        book: Book,
        transport: Transport,
        quiet: bool = False,
        console: Console | None = None,
    ):
        self.silent = quiet or transport.rank != 0
        self.console = console or Teller(stderr=True)
        self.title = f"{book.name}: {config.recipe}, {config.model.model}, {transport.size} worker(s)"
        hosts = config.hosts or len(set(transport.hosts))
        self.title += f" on {hosts} hosts" if hosts > 1 else ""
        self.title += f", {transport.way}" if transport.way else ""
        self.live: Live | None = None
        self.scores: dict[str, float] = {}
        self.error = ""
        self.pace = Throughput(config.steps)
        self.begun = time.perf_counter()

    def __enter__(self) -> Display:
        if not self.silent and self.console.is_terminal:
            self.bar = Progress(
                BarColumn(bar_width=None),
                MofNCompleteColumn(),
                TextColumn("{task.fields[left]} left"),
                console=self.console,
                expand=True,
            )
            self.task = self.bar.add_task("", total=self.pace.steps, left=clock(None))
            self.live = Live(self.bar, console=self.console)
            self.live.start()
            self.print(self.title)
        elif not self.silent:
            self.print(self.title)
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()

    def note(self, text: str) -> None:
        """Print a message that the user should see even without progress display."""
        self.print(f"note: {text}")

    def print(self, text: str) -> None:
        self.console.print(text, soft_wrap=True, highlight=False, markup=False)

    def show(self, line: dict[str, Any]) -> None:
        if self.silent:
            return
        self.pace.add(line)
        if "val" in line:
            self.scores = {name: line[name] for name in ("train", "val", "test")}
        state = f"loss {line['loss']:.4f}" + "".join(f"  {name} {score:.4f}" for name, score in self.scores.items())
        errors = [error for name, error in line.get("row_error", {}).items() if name.endswith("forward")]
        if errors:  # not every step looks
            self.error = f"  error of rows {max(errors):.3f}"
        state += self.error
        if "guard" in line:
            state += f" ({line['guard']['level']})"
        if self.live is not None:
            self.bar.update(self.task, completed=line["step"], left=clock(self.pace.left))
            self.live.update(Group(self.bar, *(Text(text, "", no_wrap=True) for text in (state, str(self.pace)))))
        elif "val" in line:
            taken = clock(time.perf_counter() - self.begun)
            self.print(f"step {line['step']:>5}  {state}  {self.pace}; {taken}, {clock(self.pace.left)} left")
