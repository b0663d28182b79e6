"""What long work tells a person, on stderr: commands and functions say the same."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

err = Console(stderr=True)


def report_progress(stage: str, done: int, total: int) -> None:
    """Progress of long work before training: one line at the beginning of each stage, a counter on a terminal."""
    if err.is_terminal and total > 1:
        err.print(f"{stage} {done}/{total}", end="\r" if done < total else "\n", highlight=False)
    elif done == 0:
        err.print(f"{stage} …", highlight=False)


def note(text: str) -> None:
    """What a person should know of, also one who asked for no progress."""
    err.print(f"note: {escape(text)}", soft_wrap=True)
