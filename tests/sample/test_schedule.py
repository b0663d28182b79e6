"""Graphs that a thread prepares a step ahead are those that would be drawn when they are needed."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pytest
import torch
from sample.scenes import on_workers, small_graph

from isthmus.errors import InputError
from isthmus.sample import Neighbours, Schedule
from isthmus.sample.row_norms import RowNorms
from isthmus.shard import DrawContext, Shard

STEPS, REFRESH, DELAY = 9, 4, 2


@dataclass
class InOnePiece:
    """A sampler of neighbours whose draw cannot be prepared."""

    of: Neighbours
    refresh: int = REFRESH

    def draw(self, context: DrawContext, step: int, row_norms: RowNorms | None = None) -> Shard:
        return self.of.draw(context, step, row_norms)


@dataclass(frozen=True)
class Watched(Neighbours):
    threads: list[str] = field(default_factory=list, compare=False)

    def prepare(self, context, step, row_norms):
        self.threads.append(threading.current_thread().name)
        return super().prepare(context, step, row_norms)


def graphs(schedule: Schedule, asking: bool = False) -> list[tuple[torch.Tensor, ...]]:
    """Return the graphs of a run that reads rows of changing norms at each step, then asks for a graph.

    With ``asking`` the others are told of the next graph at the end of a step.
    """
    found = []
    try:
        for step in range(STEPS):
            schedule.begin(step)
            nodes = schedule.context.whole.nodes
            schedule.record(torch.sin(nodes + 1.0 + step)[:, None].double(), None, "mean")
            for due in (step, step + DELAY):
                edges = schedule.at(due)
                found.append((edges.inner.indices, edges.halo.indices, edges.halo_weight, edges.picked))
            assert not schedule.asked
            if asking:
                schedule.ask(step)
                assert list(schedule.asked) == ([] if step % REFRESH == 0 else [step + DELAY + 1])
    finally:
        schedule.drain()
        assert not schedule.asked
    return found


@pytest.mark.parametrize("asking", [False, True])
def test_drawn_ahead_is_drawn_alike(asking):
    def work(context: DrawContext) -> tuple[list[str], bool]:
        watched = Watched(0.3, REFRESH)
        ahead = graphs(Schedule(watched, context, DELAY), asking)
        plain = graphs(Schedule(InOnePiece(Neighbours(0.3, REFRESH)), context, DELAY))
        same = all(
            torch.equal(*pair) for one, other in zip(ahead, plain, strict=True) for pair in zip(one, other, strict=True)
        )
        return watched.threads, same

    for threads, same in on_workers(small_graph(), 3, work):
        assert same
        # Steps 0, 4 and 8 measure, and the graph after them goes by that: it is drawn when needed, like the first.
        aside = [name.startswith("draw") for name in threads]
        assert sum(aside) == STEPS - 3
        assert len(aside) - sum(aside) == DELAY + 1 + 2


def test_an_error_of_the_thread_is_told_when_the_graph_is_needed():
    class Failing(Watched):
        def prepare(self, context, step, row_norms):
            if threading.current_thread().name.startswith("draw"):
                raise InputError("no such luck")
            return super().prepare(context, step, row_norms)

    with pytest.raises(InputError, match="no such luck"):
        on_workers(small_graph(), 2, lambda context: graphs(Schedule(Failing(0.3, REFRESH), context, DELAY)))
