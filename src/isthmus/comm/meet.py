"""How workers that are processes find each other: at a store that worker 0, or the launcher's agent, keeps.

torch's own client prints stack traces while it waits, takes up to twice its timeout, and waits for ever for a stranger
who listens at that port. So the address is tried first, and the store is opened under a deadline.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

import torch.distributed as dist

from isthmus.errors import WorkerError

T = TypeVar("T")
LOOPBACK = ("127.", "::1")
BACKLOG = 1024
AGAIN = 2.0  # seconds for another connection to a store that has answered before


def meet(rank: int, size: int, host: str, port: int, timeout: float) -> dist.Store:
    """A store that all workers have reached; the error names those that have not."""
    deadline = time.monotonic() + timeout
    # Under torchrun the agent may already keep a store at this address (then it says so in the environment).
    mine = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    store = _open(rank, size, host, port, timeout, deadline, mine)
    if absent := signed(store, "here", rank, size, deadline):
        raise WorkerError(
            f"{named(absent)} of {size} did not arrive at {host}:{port} within {timeout:g} s: "
            f"start it, or look at its own last lines; --timeout sets the limit"
        )
    return store


def keep_store(host: str, port: int = 0, timeout: float = 300.0) -> dist.TCPStore:
    """A store that listens at this address of this machine alone; torch's own would listen at all of them."""
    listener = listen(host, port)
    port, limit = listener.getsockname()[1], timedelta(seconds=timeout)
    descriptor = listener.detach()
    return dist.TCPStore(host, port, is_master=True, timeout=limit, wait_for_workers=False, master_listen_fd=descriptor)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket at an address of this machine; at all of them only if others reach it by none of its own.

    That is so behind address translation, and where a machine's own name leads it to loopback alone.
    """
    for family, kind, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        if str(address[0]).startswith(LOOPBACK) and host != "localhost" and not host.startswith(LOOPBACK):
            continue
        listener = socket.socket(family, kind)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(BACKLOG)
            return listener
        except OSError as error:
            listener.close()
            if error.errno != errno.EADDRNOTAVAIL:
                raise
    return socket.create_server(("", port), backlog=BACKLOG)


def reopen(rank: int, size: int, host: str, port: int) -> dist.Store:
    """Another connection to the store of workers that have met."""
    with _still_there():
        return _open(rank, size, host, port, AGAIN, time.monotonic() + AGAIN, mine=False)


def signed(store: dist.Store, what: str, rank: int, size: int, deadline: float) -> list[int]:
    """Signs, and waits until all have; the ranks of those that have not when it is too late."""
    with _still_there():
        store.set(f"{what}/{rank}", "1")
        while not store.check([f"{what}/{q}" for q in range(size)]) and time.monotonic() < deadline:
            time.sleep(0.02)
    return unsigned(store, what, size)


def unsigned(store: dist.Store, what: str, size: int) -> list[int]:
    """The ranks of those that have not signed yet."""
    with _still_there():
        return [q for q in range(size) if not store.check([f"{what}/{q}"])]


@contextmanager
def _still_there() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise WorkerError(
            "the meeting place is gone: worker 0, or who started it, has ended; its own last lines say why"
        ) from error


def named(ranks: Sequence[int]) -> str:
    return ", ".join(f"worker {q}" for q in ranks)


def within(seconds: float, work: Callable[[], T]) -> list[T | RuntimeError]:
    """What came of the work in a thread of its own, one thing, or nothing if it still goes on.

    A RuntimeError is what torch.distributed says of its peers; anything else is raised.
    """
    answer: list[T | RuntimeError] = []
    wrong: list[Exception] = []

    def body() -> None:
        try:
            answer.append(work())
        except RuntimeError as error:
            answer.append(error)
        except Exception as error:
            wrong.append(error)

    thread = threading.Thread(target=body, daemon=True, name="meets the others")
    thread.start()
    thread.join(max(0.1, seconds))
    if wrong:
        raise wrong[0]
    return answer


def _open(rank: int, size: int, host: str, port: int, timeout: float, deadline: float, mine: bool) -> dist.Store:
    """``mine``: this worker keeps it."""
    failure = _knock(host, None if mine else port, deadline)
    if failure:
        raise WorkerError(f"worker {rank} could not meet the others at {host}:{port} within {timeout:g} s: {failure}")

    def store() -> dist.Store:
        if mine:
            return keep_store(host, port, timeout)
        return dist.TCPStore(host, port, size, timeout=timedelta(seconds=timeout), wait_for_workers=False)

    try:
        answer = within(deadline - time.monotonic(), store)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        remedy = "give another MASTER_PORT (torchrun: --master-port)"
        raise WorkerError(f"port {port} of this machine is taken: {remedy}") from error
    if answer and not isinstance(answer[0], RuntimeError):
        # The restart count keeps an earlier attempt's arrivals and addresses from being taken for this one's.
        return dist.PrefixStore(f"isthmus/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", answer[0])
    reason = str(answer[0]).strip().splitlines()[0] if answer else "what listens there does not answer"
    raise WorkerError(
        f"worker {rank} could not meet the others at {host}:{port} within {timeout:g} s ({reason}): "
        "does another program have that port? Give another MASTER_PORT (torchrun: --master-port)"
    )


def _knock(host: str, port: int | None, deadline: float) -> str:
    """Waits until the host is known and somebody listens at the port (None: any); says what failed, or nothing."""
    while True:
        try:
            socket.getaddrinfo(host, port)
            if port is not None:
                socket.create_connection((host, port), timeout=max(0.1, deadline - time.monotonic())).close()
            return ""
        except socket.gaierror:
            failure = f"the host {host} is unknown; correct MASTER_ADDR (torchrun: --master-addr)"
        except OSError as error:
            failure = f"is worker 0 running, and can this machine reach that address? ({error.strerror or error})"
        if time.monotonic() > deadline:
            return failure
        time.sleep(0.1)
