"""The callbacks of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict

from isthmus.engine.stop import Stop

Watcher = Callable[[dict[str, Any]], None]
Note = Callable[[str], None]


class Hooks(TypedDict, total=False):
    """The callbacks that follow a run, and the request that may end it."""

    watch: Watcher | None
    """Called on every worker with each line of metrics, and with this worker's seconds of the step by purpose
    (``split``) and the ``bytes`` that it sent."""
    note: Note | None
    """Called with messages that the user should see."""
    stop: Stop | None
    """If it asks a worker to end, all write a checkpoint at the end of their step and raise `Stopped`."""
