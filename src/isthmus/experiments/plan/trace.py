"""Traces: the events of a worker, which are computing and everything in which it waits for others."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, pairwise
from statistics import median


@dataclass(frozen=True)
class Step:
    """The beginning of a step."""


@dataclass(frozen=True)
class Compute:
    """Computing for so many seconds on cores of one's own."""

    seconds: float


@dataclass(frozen=True)
class Post:
    """The sending of messages, ``sizes[q]`` bytes to worker q; room for the others' is ready, nobody waits yet."""

    transfer: int  # the same number at every worker
    sizes: tuple[int, ...]
    apart: bool = False  # not queued behind messages that were sent before


@dataclass(frozen=True)
class Wait:
    """A wait until all messages of a transfer have arrived and left."""

    transfer: int


Event = Step | Compute | Post | Wait
Trace = list[Event]


def steps_of(trace: Trace) -> list[Trace]:
    """Return the events of each step, from its beginning to that of the next."""
    begins = [at for at, event in enumerate(trace) if isinstance(event, Step)]
    return [trace[first:last] for first, last in pairwise(begins)]


def joined(steps: list[Trace]) -> Trace:
    """Return the steps as one trace, with a mark where the last one ends."""
    return [*(event for step in steps for event in step), Step()]


def steadied(steps: list[Trace]) -> list[Trace]:
    """Return the steps without the hiccups of the machine: steps with equal events compute for their median times."""
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
    """Return the seconds of computing in a trace."""
    return sum(event.seconds for event in trace if isinstance(event, Compute))


def _shape(step: Trace) -> str:
    """Return the kinds of a step's events, whatever their sizes: their first letters."""
    return "".join(type(event).__name__[0] for event in step)
