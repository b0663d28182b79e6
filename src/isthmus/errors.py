"""The errors that end a run early, each with a message that says what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

LONGEST = 1000  # characters of a message, including what it quotes
NO_ROOM = (
    "can't allocate memory",
    "Storage size calculation overflowed",
    "out of memory",
)  # parts of torch's own messages


class InputError(ValueError):
    """An error in the user's input: one line that says what is wrong and how to fix it. Exit status 2."""

    def __init__(self, message: str = ""):
        # The message may quote a file: keep it to one line, without control characters for the terminal.
        text = "".join(c if c.isprintable() else " " for c in str(message))
        super().__init__(text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} … {text[-LONGEST // 3 :]}")


class WorkerError(RuntimeError):
    """A worker did not arrive, did not answer in time, or died; names worker, site, pass and step. Exit status 3."""


class CodeError(WorkerError):
    """Code in a worker, mostly a user's model, raised an exception and would do so again. Exit status 3."""


class Stopped(Exception):
    """A signal ended the run in good order. Exit status 143 (SIGTERM) or 130 (SIGINT)."""

    def __init__(self, message: str, status: int):
        super().__init__(message)
        self.status = status


@contextmanager
def enough_memory(what: str) -> Iterator[None]:
    """Report in one line that the memory was too small for ``what``, whichever call failed."""
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
