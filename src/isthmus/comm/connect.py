"""Connect workers that have met with each other: all within the limit, or the error says which did not.

gloo waits for each peer separately, for the whole limit each time, and its errors name no worker. So it connects in a
thread with a deadline, and marks in the store tell how far the other workers have come.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from isthmus.comm.guest import RendezvousStore
from isthmus.comm.meet import all_connected, named, signed, unsigned, within
from isthmus.errors import WorkerError

GRACE = 5.0  # seconds for connecting, at most the limit, if the last worker arrived just in time
_TRYING, _DONE = "connecting", "connected"
_INTERFACE = "set GLOO_SOCKET_IFNAME to an interface that the other machines reach (`ip address` lists them)"


def connect(
    rank: int,
    size: int,
    store: RendezvousStore,
    link: Callable[[], None],
    timeout: float,
    deadline: float,
) -> None:
    """Call ``link``, which connects with all others, and return when every worker has done so."""
    who, deadline = f"worker {rank} of {size}", max(deadline, time.monotonic() + min(timeout, GRACE))

    def work() -> None:
        store.set(f"{_TRYING}/{rank}", "1")
        link()

    answer = within(deadline - time.monotonic(), work)
    if answer and isinstance(answer[0], RuntimeError):
        with suppress(RuntimeError):
            store.delete_key(f"{_TRYING}/{rank}")  # so that the others name this worker as missing
        why = str(answer[0]).splitlines()[0][:200]
        raise WorkerError(
            f"{who} met the others, but cannot connect to them ({why}): check that none has ended, and {_INTERFACE}"
        ) from answer[0]
    absent = signed(store, _DONE, rank, size, deadline) if answer else _unconnected(rank, size, store)
    if absent or not answer:
        raise WorkerError(
            f"{who} met the others, but {named(absent) or 'it'} did not connect within {timeout:g} s: look at that "
            f"worker's own last lines; if it is alive, {_INTERFACE}"
        )
    all_connected(store)


def _unconnected(rank: int, size: int, store: RendezvousStore) -> list[int]:
    """Return the workers that do not even try; if all do, those that have not succeeded."""
    return unsigned(store, _TRYING, size) or [q for q in unsigned(store, _DONE, size) if q != rank]
