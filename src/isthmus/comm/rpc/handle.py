"""A request under way."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from torch import Tensor

from isthmus.errors import WorkerError

T = TypeVar("T")


class Reply:
    """The answer of one worker to one request, once it is here; the service's thread fills it in."""

    def __init__(self, words: str):
        """``words``: who asks whom for what, for errors."""
        self.words = words
        self.tensors: list[Tensor] = []
        self.error = ""
        self._there = threading.Event()

    def fill(self, tensors: list[Tensor], error: str = "") -> None:
        self.tensors, self.error = tensors, error
        self._there.set()

    def wait(self, seconds: float) -> list[Tensor]:
        if not self._there.wait(max(0.0, seconds)):
            raise WorkerError(
                f"{self.words}: no answer in time; look at that worker's own last lines, or raise --timeout if it is "
                "only slow"
            )
        if self.error:
            raise WorkerError(f"{self.words}: {self.error}")
        return self.tensors

    @property
    def done(self) -> bool:
        return self._there.is_set()


class Handle(Generic[T]):
    """A request under way, to one worker or several. `wait` gives its result, as often as it is called."""

    def __init__(self, replies: Sequence[Reply], join: Callable[[list[list[Tensor]]], T], timeout: float):
        """``join`` makes the result of the answers, in the thread that waits."""
        self._replies, self._join, self._timeout = replies, join, timeout
        self._made: list[T] = []

    @property
    def done(self) -> bool:
        """Whether `wait` would return at once."""
        return all(reply.done for reply in self._replies)

    def wait(self, seconds: float | None = None) -> T:
        """Return the result; raise a `WorkerError` that names worker, request and step if it is not here in time.

        ``seconds``: the limit, by default that of the run.
        """
        if not self._made:
            deadline = time.monotonic() + (self._timeout if seconds is None else seconds)
            answers = [reply.wait(deadline - time.monotonic()) for reply in self._replies]
            self._made.append(self._join(answers))
            self._replies = ()
        return self._made[0]
