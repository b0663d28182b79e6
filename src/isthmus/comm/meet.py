"""Bring workers that are processes together, at a meeting point (`comm.rendezvous`) that one process keeps.

That is worker 0, at the address that all were told, or the process that started them, if it was this program. With
torchrun, its agent has its own store at that address; worker 0 only publishes there where the meeting point is.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

import torch.distributed as dist

from isthmus.comm.guest import RendezvousStore, enter, pause
from isthmus.comm.rendezvous import Rendezvous
from isthmus.comm.secret import run_secret
from isthmus.errors import WorkerError

T = TypeVar("T")
KEPT = "ISTHMUS_MEETING"  # "starter": the process that started the workers keeps the meeting point
MEETING = "meeting"


def meet(rank: int, size: int, host: str, port: int, timeout: float, address: str = "") -> RendezvousStore:
    """Return a store that all workers have reached; the error names those that have not.

    ``address`` is where worker 0 listens on this machine if host and port are those of torchrun's agent; "": the
    address that leads there.
    """
    deadline, secret = time.monotonic() + timeout, run_secret()
    place, keeper = (host, port), None
    if os.environ.get(KEPT) != "starter":
        if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
            place, keeper = _told_by_agent(rank, size, (host, port), address, secret, timeout, deadline)
        elif rank == 0:
            keeper = _keep(host, port, size, secret, timeout, deadline)
    if keeper is not None:
        place = keeper.here
    try:
        store = enter(rank, size, place, secret, timeout, deadline)
        if isinstance(store, str):
            where = f"{place[0]}:{place[1]}"
            raise WorkerError(f"worker {rank} could not meet the others at {where} within {timeout:g} s{store}")
    except BaseException:
        if keeper is not None:
            keeper.close()
        raise
    store.keeper = keeper
    try:
        if absent := signed(store, "here", rank, size, deadline):
            raise _absent(absent, size, host, port, timeout)
        return store
    except BaseException:
        store.leave()
        raise


def _keep(host: str, port: int, size: int, secret: bytes, timeout: float, deadline: float) -> Rendezvous:
    """Make the meeting point of worker 0, as soon as the name of its host can be resolved."""
    if failure := _knock(host, None, deadline):
        raise WorkerError(f"worker 0 could not meet the others at {host}:{port} within {timeout:g} s: {failure}")
    try:
        return Rendezvous(host, port, size, secret)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        remedy = "give another MASTER_PORT (torchrun: --master-port)"
        raise WorkerError(f"port {port} of this machine is taken: {remedy}") from error


def _told_by_agent(
    rank: int, size: int, agent: tuple[str, int], address: str, secret: bytes, timeout: float, deadline: float
) -> tuple[tuple[str, int], Rendezvous | None]:
    """Return the address of the meeting point, and on worker 0 the meeting point itself.

    An attacker who can write to the agent's store can name another address, but cannot prove there to know the secret.
    """
    store = _open(rank, size, *agent, timeout, deadline)
    if rank == 0:
        address = address or _own_address(*agent)
        keeper = Rendezvous(address, 0, size, secret)
        with _still_there():
            store.set(MEETING, json.dumps([address, keeper.port]))
        return keeper.here, keeper
    with _still_there():
        while not (there := store.check([MEETING])) and time.monotonic() < deadline:
            time.sleep(0.02)
        told = store.get(MEETING) if there else b""
    if there:
        try:
            host, port = json.loads(told)
            return (str(host), int(port)), None
        except (ValueError, TypeError) as error:
            remedy = "let nobody else reach torchrun's port (docs/security.md)"
            raise WorkerError(
                f"somebody else has written to the store of torchrun's agent ({error}): {remedy}"
            ) from error
    raise _absent([0], size, *agent, timeout)


def _absent(ranks: Sequence[int], size: int, host: str, port: int, timeout: float) -> WorkerError:
    return WorkerError(
        f"{named(ranks)} of {size} did not arrive at {host}:{port} within {timeout:g} s: "
        f"start it, or look at its own last lines; --timeout sets the limit"
    )


def _own_address(host: str, port: int) -> str:
    """Return the address of this machine by which it reaches a host."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as asking:
        asking.connect(address)  # sends nothing: it only selects the route
        return str(asking.getsockname()[0])


def signed(store: dist.Store, what: str, rank: int, size: int, deadline: float) -> list[int]:
    """Sign, and wait until all workers have; return the ranks of those that have not by the deadline."""
    with _still_there():
        store.set(f"{what}/{rank}", "1")
        while not store.check([f"{what}/{q}" for q in range(size)]) and time.monotonic() < deadline:
            time.sleep(pause(size))
    return unsigned(store, what, size)


def all_connected(store: RendezvousStore) -> None:
    """Tell the meeting point that this worker waits for no other worker."""
    with _still_there():
        store.connected()


def unsigned(store: dist.Store, what: str, size: int) -> list[int]:
    """Return the ranks of the workers that have not signed yet."""
    with _still_there():
        return [q for q in range(size) if not store.check([f"{what}/{q}"])]


@contextmanager
def _still_there() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise WorkerError(
            "the meeting point is gone: worker 0, or the process that started it, has ended; its own last lines say why"
        ) from error


def named(ranks: Sequence[int]) -> str:
    return ", ".join(f"worker {q}" for q in ranks)


def within(seconds: float, work: Callable[[], T]) -> list[T | RuntimeError]:
    """Run `work` in a thread; return [result], or [] if it still runs after ``seconds``.

    A RuntimeError, by which torch.distributed reports on peers, is returned as the result; anything else is raised.
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


def _open(rank: int, size: int, host: str, port: int, timeout: float, deadline: float) -> dist.Store:
    """Return the store of torchrun's agent.

    torch's own client prints stack traces while it waits, takes up to twice its timeout, and waits forever for another
    program that listens at that port. So the address is tried first, and the store is opened under a deadline.
    """
    failure = _knock(host, port, deadline)
    if failure:
        raise WorkerError(f"worker {rank} could not meet the others at {host}:{port} within {timeout:g} s: {failure}")

    def store() -> dist.Store:
        return dist.TCPStore(host, port, size, timeout=timedelta(seconds=timeout), wait_for_workers=False)

    answer = within(deadline - time.monotonic(), store)
    if answer and not isinstance(answer[0], RuntimeError):
        # The restart count prevents using the meeting point of an earlier attempt.
        return dist.PrefixStore(f"isthmus/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", answer[0])
    reason = str(answer[0]).strip().splitlines()[0] if answer else "what listens there does not answer"
    raise WorkerError(
        f"worker {rank} could not meet the others at {host}:{port} within {timeout:g} s ({reason}): "
        "does another program have that port? Give another MASTER_PORT (torchrun: --master-port)"
    )


def _knock(host: str, port: int | None, deadline: float) -> str:
    """Wait until the host is known and a program listens at the port (None: any); return what failed, or ""."""
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
