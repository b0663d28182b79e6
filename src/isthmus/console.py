"""Report progress and notes on stderr, the same way for commands and functions.

What the library says goes through Python's logging: notes are warnings of the logger ``isthmus``, lost workers and the
like are errors. Its handler prints them; a program that wants them elsewhere replaces it.
"""

from __future__ import annotations

import logging
from typing import Any

from rich.console import Console
from rich.control import Control
from rich.markup import escape
from rich.segment import ControlType
from rich.text import Text

_ERASED = Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2))


class Teller(Console):
    """A console with a counter in its last line, which disappears when anything else is printed.

    The counter is only shown on real terminals; notebooks and CI set FORCE_COLOR, which rich would take for one.
    """

    counting = False

    @property
    def is_terminal(self) -> bool:
        return super().is_terminal and (self._force_terminal is True or self.file.isatty())

    def count(self, text: str) -> None:
        """Show the text in place of the previous counter, cut to the width of the terminal."""
        line = Text(text)
        line.truncate(max(self.width - 1, 1), overflow="ellipsis")
        self.print(line, end="\r", highlight=False)
        self.counting = True

    def print(self, *objects: Any, **how: Any) -> None:
        if self.counting:
            self.counting = False
            self.control(_ERASED)
        super().print(*objects, **how)


err = Teller(stderr=True)
log = logging.getLogger("isthmus")


class Said(logging.Handler):
    """Prints what the library says on stderr, beside the counter: "note: …", and errors as they are."""

    def emit(self, record: logging.LogRecord) -> None:
        note = "" if record.levelno >= logging.ERROR else "note: "
        err.print(note + escape(record.getMessage()), soft_wrap=True, highlight=bool(note))


if not log.handlers:
    log.addHandler(Said())
    log.propagate = False


def in_notebook() -> bool:
    return err.is_jupyter


def report_progress(stage: str, done: int, total: int) -> None:
    """Report progress before training: one line at the beginning of each stage, a counter on a terminal."""
    if err.is_terminal and 1 < total > done:
        err.count(f"{stage} {done:,}/{total:,}")
    elif err.is_terminal and total > 1:
        err.print(f"{stage} {done:,}/{total:,}", highlight=False, markup=False)
    elif done == 0:
        err.print(f"{stage} …", highlight=False, markup=False)


def note(text: str) -> None:
    """Tell the user something that matters even without progress display."""
    log.warning("%s", text)
