"""The ways a run may end before its time, each with a message that says what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

LONGEST = 1000  # characters of a message, whatever it quotes
NO_ROOM = ("can't allocate memory", "Storage size calculation overflowed")  # torch's own words


class InputError(ValueError):
    """What the user gave is wrong: one line that says what and how to mend it. Exit status 2."""

    def __init__(self, message: str = ""):
        # What stands in a file may be quoted in it: no second line, and nothing that a terminal would obey.
        text = "".join(c if c.isprintable() else " " for c in str(message))
        super().__init__(text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} … {text[-LONGEST // 3 :]}")


class WorkerError(RuntimeError):
    """A worker did not arrive, did not answer in time, or died. Names worker, site, direction, step. Exit status 3."""


class CodeError(WorkerError):
    """Code that a worker runs, mostly a model of one's own, raised an exception, and would again. Exit status 3."""


class Stopped(Exception):
    """A signal asked the run to end, and it did, in good order. Exit status 143 (SIGTERM) or 130 (SIGINT)."""

    def __init__(self, message: str, status: int):
        super().__init__(message)
        self.status = status


@contextmanager
def enough_memory(what: str) -> Iterator[None]:
    """Say in one line that memory did not suffice for ``what``, whoever it was that asked for it."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not any(words in str(error) for words in NO_ROOM):
            raise
        raise InputError(
            f"there is not enough memory for {what} ({_first_line(error)}): make it smaller, cut it into more parts, "
            "or take a machine with more"
        ) from error


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0].rpartition("] ")[2] or "out of memory"
