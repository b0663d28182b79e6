"""The schedule of drawn graphs: draws each step's graph when it is needed, from what is known by then."""

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
    """A rule that draws a step's graph from (seed, step, norms of rows) alone. Every worker draws at the same time."""

    @property
    def refresh(self) -> int:
        """Steps between measurements of the norms of rows; 0: the sampler does not use them."""

    def draw(self, context: DrawContext, step: int, row_norms: RowNorms | None = None) -> Shard: ...

    def inclusion(self, context: DrawContext, row_norms: RowNorms | None = None) -> Tensor:
        """Return the probability that each halo node is read at all, float64 [h]."""


@runtime_checkable
class InParts(Protocol):
    """A sampler whose draw takes long, and needs the other workers only at its end."""

    def prepare(self, context: DrawContext, step: int, row_norms: RowNorms | None) -> Any:
        """Draw what this worker can draw alone, in any thread."""

    def ask(self, context: DrawContext, step: int, prepared: Any) -> Any:
        """Tell the other workers what they must know, without waiting. Every worker asks at the same time."""

    def finish(self, context: DrawContext, prepared: Any, asked: Any) -> Shard:
        """Return the graph, once the others' messages have arrived."""


class Schedule:
    """The graphs of a run: each is drawn ``delay`` steps before it is used, and kept until then.

    A thread prepares the next graph during the step; at the end of a step the workers tell each other what they drew,
    so that nobody waits for that when the next step begins.
    """

    def __init__(self, sampler: Sampler | None, context: DrawContext, delay: int):
        self.sampler, self.context, self.delay = sampler, context, delay
        self.ahead: dict[int, Future] = {}  # by step: graphs being prepared
        self.asked: dict[int, tuple[Any, Any]] = {}  # by step: what was prepared, and the request sent to the others
        self.thread: ThreadPoolExecutor | None = None  # a single thread, which prepares graphs
        self.known: list[RowNorms] = []  # oldest first; those that a graph may still be drawn from
        self._graphs: dict[int, Shard] = {}
        self._recorder: NormRecorder | None = None
        self._begun = -1  # the last step that has begun

    def begin(self, step: int) -> None:
        """Begin training step `step`: take up the norms that the last step measured, and forget old graphs."""
        if self.sampler is None or step == self._begun:
            return
        self._begun = step
        self._learn()
        self._graphs = {at: edges for at, edges in self._graphs.items() if at >= step}
        if self.sampler.refresh and (step % self.sampler.refresh == 0 or not self.known):
            self._recorder = NormRecorder(step)
        self._prepare(step)

    def at(self, step: int) -> Shard:
        """Return the graph of a step; draw it if that has not been done."""
        if self.sampler is None:
            return self.context.whole
        if step not in self._graphs:
            begun = time.perf_counter()
            self._graphs[step] = self._draw(self.sampler, step)
            self.context.transport.ledger.sample_seconds += time.perf_counter() - begun
        return self._graphs[step]

    def ask(self, step: int) -> None:
        """Tell the others, near the end of training step `step`, of the graph that the next step will ask for."""
        wanted = step + self.delay + 1
        if wanted in self.ahead and isinstance(self.sampler, InParts):
            prepared = self.ahead.pop(wanted).result(self.context.transport.timeout)
            self.asked[wanted] = prepared, self.sampler.ask(self.context, wanted, prepared)

    @property
    def latest(self) -> RowNorms | None:
        """The norms of rows that were measured last, if any."""
        return self.known[-1] if self.known else None

    @property
    def recording(self) -> bool:
        """Whether this step measures the norms of rows."""
        return self._recorder is not None

    def record(self, x: Tensor, through: Tensor | None, norm: str) -> None:
        """Record the norms of rows about to be aggregated, if this step measures them."""
        if self._recorder is not None:
            self._recorder.record(x, through, norm, self.context.whole.norm(norm, self.context.dtype).source)

    def state(self) -> dict[str, Tensor]:
        """Return the norms that graphs may still be drawn from, by name."""
        if self._recorder is not None and self._recorder.squares:  # without any, its step has only begun
            self._learn()
        state = {}
        for k, row_norms in enumerate(self.known):
            state[f"{k}.since"] = torch.tensor([row_norms.since])
            for name in row_norms.inner:
                state[f"{k}.inner.{name}"], state[f"{k}.halo.{name}"] = row_norms.inner[name], row_norms.halo[name]
        return state

    def restore(self, state: dict[str, Tensor]) -> None:
        """Put a state back; graphs that were drawn before are forgotten."""
        self.drain()
        self.known, self._graphs, self._recorder, self._begun = [], {}, None, -1
        while f"{len(self.known)}.since" in state:
            mine = f"{len(self.known)}."
            sides: dict[str, dict[str, Tensor]] = {"inner": {}, "halo": {}}
            for name, tensor in state.items():
                if name.startswith(mine) and not name.endswith(".since"):
                    side, norm = name.removeprefix(mine).split(".", 1)
                    sides[side][norm] = tensor.clone()
            self.known.append(RowNorms(int(state[f"{mine}since"]), **sides))

    def _learn(self) -> None:
        """Share the norms measured in the last step with the other workers."""
        if self._recorder is not None:
            row_norms = self._recorder.share(self.context.whole.links, self.context.transport)
            self._recorder = None
            self.known.append(row_norms)
            # A graph is drawn from what was known `delay` steps before its use. If the run is resumed now, a graph used
            # `delay` steps ago is drawn again, for gradients that are still under way.
            needed = [at for at, other in enumerate(self.known) if other.since < row_norms.since - 2 * self.delay]
            self.known = self.known[needed[-1] if needed else 0 :]

    def _prepare(self, step: int) -> None:
        """Start preparing the graph that the next step will ask for, unless it depends on what this step measures."""
        if isinstance(self.sampler, InParts) and self._recorder is None:
            wanted, threads = step + self.delay + 1, torch.get_num_threads()
            about = (self.context, wanted, self.row_norms(wanted))
            if self.thread is None:
                self.thread = ThreadPoolExecutor(1, "draw", initializer=torch.set_num_threads, initargs=(threads,))
            self.ahead[wanted] = self.thread.submit(self.sampler.prepare, *about)

    def _draw(self, sampler: Sampler, step: int) -> Shard:
        self.ask(step - self.delay - 1)  # in case that step did not reach its end
        if step not in self.asked or not isinstance(sampler, InParts):
            return sampler.draw(self.context, step, self.row_norms(step))
        return sampler.finish(self.context, *self.asked.pop(step))

    def drain(self) -> None:
        """Finish all draws and requests that are under way."""
        for step in list(self.asked):
            self.at(step)
        self.close()

    def close(self) -> None:
        """End the thread that prepares graphs, without a word to the other workers: they may be gone."""
        if self.thread is not None:
            self.thread.shutdown(cancel_futures=True)
        self.ahead, self.thread = {}, None

    def row_norms(self, step: int) -> RowNorms | None:
        """Return the norms that the graph of a step is drawn from."""
        by_then = [row_norms for row_norms in self.known if row_norms.since <= max(step - self.delay, 0)]
        return by_then[-1] if by_then else None
