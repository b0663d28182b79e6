"""How workers that are processes find each other: at a store that worker 0, or the launcher's agent, keeps.

torch's own client prints stack traces while it waits, takes up to twice its timeout, and waits for ever for a stranger
who listens at that port. So the address is tried first, and the store is opened under a deadline.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from isthmus.errors import WorkerError


def meet(rank: int, size: int, host: str, port: int, timeout: float) -> dist.Store:
    """A store that all workers have reached; the error names those that have not."""
    deadline = time.monotonic() + timeout
    store = _open(rank, size, host, port, timeout, deadline)
    # The restart count keeps an earlier attempt's arrivals and addresses from being taken for this one's.
    store = dist.PrefixStore(f"isthmus/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    store.set(f"here/{rank}", "1")
    keys = [f"here/{q}" for q in range(size)]
    while not store.check(keys):
        if time.monotonic() > deadline:
            absent = [q for q, key in enumerate(keys) if not store.check([key])]
            names = ", ".join(f"worker {q}" for q in absent)
            raise WorkerError(
                f"{names} of {size} did not arrive at {host}:{port} within {timeout:g} s: "
                f"start it, or look at its own last lines; --timeout sets the limit"
            )
        time.sleep(0.02)
    return store


def _open(rank: int, size: int, host: str, port: int, timeout: float, deadline: float) -> dist.Store:
    # Under torchrun the agent may already keep a store at this address (then it says so in the environment).
    mine = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    failure = _knock(host, None if mine else port, deadline)
    if failure:
        raise WorkerError(f"worker {rank} could not meet the others at {host}:{port} within {timeout:g} s: {failure}")
    answer: list[Any] = []

    def connect() -> None:
        try:
            limit = timedelta(seconds=timeout)
            answer.append(dist.TCPStore(host, port, size, is_master=mine, timeout=limit, wait_for_workers=False))
        except RuntimeError as error:
            answer.append(error)

    opening = threading.Thread(target=connect, daemon=True, name="opens the store")
    opening.start()
    opening.join(max(0.1, deadline - time.monotonic()))
    if answer and not isinstance(answer[0], RuntimeError):
        return answer[0]
    if mine and answer and "EADDRINUSE" in str(answer[0]):
        raise WorkerError(f"port {port} of this machine is taken: give another MASTER_PORT (torchrun: --master-port)")
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
