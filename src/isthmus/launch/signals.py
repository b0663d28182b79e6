"""Let SIGTERM (preemption) and SIGINT end a run in good order."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from isthmus.engine.stop import Stop


@contextmanager
def asked_to_stop(last: bool = False) -> Iterator[Stop]:
    """Record signals as a request during the block; a second SIGINT interrupts at once, as usual.

    `last`: only the end of the process follows, and a late signal does not cut that short.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():  # Python delivers signals only to the main thread
        yield stop
        return

    def ask(number: int, frame: object) -> None:
        stop.signal = stop.signal or number
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        if not last:
            for number, handler in before.items():
                signal.signal(number, handler)
