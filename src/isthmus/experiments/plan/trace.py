"""What a worker did, as the events of a trace: computing, and everything that it waits for others in."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, pairwise
from statistics import median


@dataclass(frozen=True)
class Step:
    """A step begins."""


@dataclass(frozen=True)
class Compute:
    """So many seconds on cores of one's own."""

    seconds: float


@dataclass(frozen=True)
class Post:
    """Messages leave, ``sizes[q]`` bytes to worker q, and room for those of the others is ready; nobody waits yet."""

    transfer: int  # the same number at every worker
    sizes: tuple[int, ...]
    apart: bool = False  # not behind messages that were sent before


@dataclass(frozen=True)
class Wait:
    """Until all messages of a transfer have come and gone."""

    transfer: int


Event = Step | Compute | Post | Wait
Trace = list[Event]


def steps_of(trace: Trace) -> list[Trace]:
    """The events of each step, from its beginning to that of the next."""
    begins = [at for at, event in enumerate(trace) if isinstance(event, Step)]
    return [trace[first:last] for first, last in pairwise(begins)]


def joined(steps: list[Trace]) -> Trace:
    """Steps one after the other, and the mark where the last one ends."""
    return [*(event for step in steps for event in step), Step()]


def steadied(steps: list[Trace]) -> list[Trace]:
    """The same steps without the hiccups of the machine: steps that do the same compute for the same times, medians."""
    alike = {shape: list(group) for shape, group in groupby(sorted(steps, key=_shape), key=_shape)}
    usual = {
        shape: [
            Compute(median(event.seconds for event in events)) if isinstance(events[0], Compute) else None  # type: ignore[union-attr]
            for events in zip(*group, strict=True)
        ]
        for shape, group in alike.items()
    }
    return [[typical or event for typical, event in zip(usual[_shape(step)], step, strict=True)] for step in steps]


def computing(trace: Trace) -> float:
    """Seconds of computing in it."""
    return sum(event.seconds for event in trace if isinstance(event, Compute))


def _shape(step: Trace) -> str:
    """What is done, whatever its size: the first letters of the events."""
    return "".join(type(event).__name__[0] for event in step)
