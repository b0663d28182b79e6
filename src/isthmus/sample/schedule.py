"""The graphs of a run, step by step: drawn when they are needed, from what is known by then."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from isthmus.sample.row_norms import NormRecorder, RowNorms
from isthmus.shard.draw_context import DrawContext
from isthmus.shard.shard import Shard


class Sampler(Protocol):
    """Draws the graph of a step: a function of (seed, step, sizes) alone. Every worker draws at the same time."""

    @property
    def refresh(self) -> int:
        """Steps between measurements of the sizes of rows; 0: it does not go by them."""

    def draw(self, context: DrawContext, step: int, row_norms: RowNorms | None = None) -> Shard: ...

    def inclusion(self, context: DrawContext, row_norms: RowNorms | None = None) -> Tensor:
        """The probability that a halo node is read at all, float64 [h]."""


@runtime_checkable
class InParts(Protocol):
    """A sampler whose draw is long, and needs the other workers only at its end."""

    def prepare(self, context: DrawContext, step: int, row_norms: RowNorms | None) -> Any:
        """What this worker can draw alone, in any thread."""

    def ask(self, context: DrawContext, step: int, prepared: Any) -> Any:
        """Tells the others what they must know, and does not wait. Every worker asks at the same time."""

    def finish(self, context: DrawContext, prepared: Any, asked: Any) -> Shard:
        """The graph, when the others have told."""


class Schedule:
    """Draws a graph ``delay`` steps before it is used, and keeps it until then.

    Of the one that is wanted next, a thread draws what it can beside the computing; at the end of a step the workers
    tell each other of it, so that nobody waits for that when the next step begins.
    """

    def __init__(self, sampler: Sampler | None, context: DrawContext, delay: int):
        self.sampler, self.context, self.delay = sampler, context, delay
        self.ahead: dict[int, Future] = {}  # by step: what is being prepared for its graph
        self.asked: dict[int, tuple[Any, Any]] = {}  # by step: what was prepared, and what the others were told
        self.thread: ThreadPoolExecutor | None = None  # of one thread, which prepares
        self.known: list[RowNorms] = []  # oldest first; those that a graph may still be drawn from
        self._graphs: dict[int, Shard] = {}
        self._measure: NormRecorder | None = None
        self._begun = -1  # the last step that did

    def begin(self, step: int) -> None:
        """Training step `step` begins: what the last one measured becomes known, old graphs are forgotten."""
        if self.sampler is None or step == self._begun:
            return
        self._begun = step
        self._learn()
        self._graphs = {at: edges for at, edges in self._graphs.items() if at >= step}
        if self.sampler.refresh and step % self.sampler.refresh == 0:
            self._measure = NormRecorder(step)
        self._prepare(step)

    def at(self, step: int) -> Shard:
        """The graph of a step."""
        if self.sampler is None:
            return self.context.whole
        if step not in self._graphs:
            begun = time.perf_counter()
            self._graphs[step] = self._draw(self.sampler, step)
            self.context.transport.ledger.sample_seconds += time.perf_counter() - begun
        return self._graphs[step]

    def ask(self, step: int) -> None:
        """Training step `step` is nearly over: the others are told of the graph that the next one will ask for."""
        wanted = step + self.delay + 1
        if wanted in self.ahead and isinstance(self.sampler, InParts):
            prepared = self.ahead.pop(wanted).result(self.context.transport.timeout)
            self.asked[wanted] = prepared, self.sampler.ask(self.context, wanted, prepared)

    @property
    def latest(self) -> RowNorms | None:
        """What is known of the sizes of rows."""
        return self.known[-1] if self.known else None

    @property
    def measures(self) -> bool:
        """Whether this step measures the sizes of rows."""
        return self._measure is not None

    def look(self, x: Tensor, through: Tensor | None, norm: str) -> None:
        """Rows pass that will be aggregated."""
        if self._measure is not None:
            self._measure.look(x, through, norm, self.context.whole.norm(norm, self.context.dtype).source)

    def state(self) -> dict[str, Tensor]:
        self._learn()
        state = {}
        for k, row_norms in enumerate(self.known):
            state[f"{k}.since"] = torch.tensor([row_norms.since])
            for name in row_norms.inner:
                state[f"{k}.inner.{name}"], state[f"{k}.halo.{name}"] = row_norms.inner[name], row_norms.halo[name]
        return state

    def restore(self, state: dict[str, Tensor]) -> None:
        self.known = []
        while f"{len(self.known)}.since" in state:
            mine = f"{len(self.known)}."
            sides: dict[str, dict[str, Tensor]] = {"inner": {}, "halo": {}}
            for name, tensor in state.items():
                if name.startswith(mine) and not name.endswith(".since"):
                    side, norm = name.removeprefix(mine).split(".", 1)
                    sides[side][norm] = tensor.clone()
            self.known.append(RowNorms(int(state[f"{mine}since"]), **sides))

    def _learn(self) -> None:
        """What was measured in the last step is shared."""
        if self._measure is not None:
            row_norms = self._measure.share(self.context.whole.links, self.context.transport)
            self._measure = None
            self.known.append(row_norms)
            # A graph is drawn from what was known `delay` steps before its use; and one that was used `delay` steps
            # ago is drawn again if the run is resumed now, for gradients that are still under way.
            needed = [at for at, other in enumerate(self.known) if other.since < row_norms.since - 2 * self.delay]
            self.known = self.known[needed[-1] if needed else 0 :]

    def _prepare(self, step: int) -> None:
        """Begins what the next step will ask for; not if it goes by what this one measures."""
        if isinstance(self.sampler, InParts) and self._measure is None:
            wanted, threads = step + self.delay + 1, torch.get_num_threads()
            about = (self.context, wanted, self.row_norms(wanted))
            if self.thread is None:
                self.thread = ThreadPoolExecutor(1, "draw", initializer=torch.set_num_threads, initargs=(threads,))
            self.ahead[wanted] = self.thread.submit(self.sampler.prepare, *about)

    def _draw(self, sampler: Sampler, step: int) -> Shard:
        self.ask(step - self.delay - 1)  # if that step was not brought to its end
        if step not in self.asked or not isinstance(sampler, InParts):
            return sampler.draw(self.context, step, self.row_norms(step))
        return sampler.finish(self.context, *self.asked.pop(step))

    def drain(self) -> None:
        """Nothing is being drawn, and nobody is being told, after this."""
        for step in list(self.asked):
            self.at(step)
        self.close()

    def close(self) -> None:
        """Ends the thread that prepares, and asks nothing of the others: they may be gone."""
        if self.thread is not None:
            self.thread.shutdown(cancel_futures=True)
        self.ahead, self.thread = {}, None

    def row_norms(self, step: int) -> RowNorms | None:
        """What the graph of a step is drawn from."""
        by_then = [row_norms for row_norms in self.known if row_norms.since <= max(step - self.delay, 0)]
        return by_then[-1] if by_then else None
