"""A worker's side of the meeting point: a store for torch.distributed, behind a proof of the run secret.

gloo writes this worker's addresses into it and reads those of the others.
"""

from __future__ import annotations

import base64
import json
import secrets
import socket
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from isthmus.comm.frames import GREETING, MAGIC, NONCE, TAG, Seal, Stranger, Unframer, frame, key_of, proof, proven
from isthmus.comm.rendezvous import REFUSED, SECONDS, Rendezvous, most_bytes
from isthmus.comm.secret import SECRET, SECRET_FILE
from isthmus.errors import InputError, WorkerError

PATIENCE = 1.5


def pause(size: int) -> float:
    """Return the seconds between two polls for something that is not there yet; longer for many workers."""
    return max(0.02, size / 2000)


class Gone(RuntimeError):
    """An error: the meeting point does not answer any more."""


class RendezvousStore(dist.Store):
    """The connection of worker ``rank`` of ``size``, a store that several threads may use; each question is short.

    The handshake takes at most the timeout of the stream, a question at most ``timeout`` seconds.
    """

    def __init__(self, stream: socket.socket, rank: int, size: int, secret: bytes, timeout: float):
        super().__init__()
        self.stream, self.limit, self.pause, self.lock = stream, timeout, pause(size), threading.Lock()
        self.keeper: Rendezvous | None = None  # the meeting point itself, if this worker keeps it
        self.frames = Unframer(8 * most_bytes(size))
        self.seal = self._introduce(rank, size, key_of(secret), time.monotonic() + (stream.gettimeout() or SECONDS))

    def _introduce(self, rank: int, size: int, key: bytes, deadline: float) -> Seal:
        """Prove to each other that both know the secret; raise `Stranger` if it is not a meeting point that listens."""
        greeting = self._receive(deadline)
        if len(greeting) != GREETING or not greeting.startswith(MAGIC):
            raise Stranger("what listens there is no meeting point of this version of isthmus")
        theirs, mine = greeting[len(MAGIC) :], secrets.token_bytes(NONCE)
        words = json.dumps({"rank": rank, "size": size}).encode()
        self.stream.sendall(frame(mine + proof(key, b"hello", theirs, mine, words) + words))
        content = self._receive(deadline)
        if content == REFUSED:
            raise InputError(
                f"the meeting point refused worker {rank}, since its run secret differs: give every worker "
                f"the same {SECRET} or {SECRET_FILE}"
            )
        answer = content[TAG:]
        proven(content[:TAG], key, b"answer", theirs, mine, answer)
        told = json.loads(answer)
        _check_quarrel(told)
        if "taken" in told:
            raise WorkerError(
                f"there is already a worker {rank}, at {told['taken']}: was this one started twice, or does another "
                "have the same RANK?"
            )
        return Seal(key, theirs, mine, server=False)

    def set(self, key: str, value: bytes | str) -> None:
        content = value.encode() if isinstance(value, str) else value
        self._ask("set", key=key, value=base64.b64encode(content).decode())

    def get(self, key: str) -> bytes:
        self.wait([key])
        return base64.b64decode(self._ask("get", key=key)["value"])

    def check(self, keys: Sequence[str]) -> bool:
        return self._ask("check", keys=list(keys))["there"]

    def delete_key(self, key: str) -> bool:
        return self._ask("delete", key=key)["there"]

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Return when all keys are there; raise a RuntimeError if they are not in time."""
        seconds = self.limit if timeout is None else timeout.total_seconds()
        # gloo's limit for one worker is the run's for all; `comm.connect` knows who is missing and must time out first.
        deadline = time.monotonic() + PATIENCE * seconds
        while not self.check(keys):
            if time.monotonic() > deadline:
                raise RuntimeError(f"timed out after {seconds:g} s")
            time.sleep(self.pause)

    def connected(self) -> None:
        """Report that this worker is connected to all others; when all have, the meeting point is closed."""
        self._ask("connected")

    def leave(self) -> None:
        """End the connection, and the meeting point if this worker keeps it."""
        self.stream.close()
        if self.keeper is not None:
            self.keeper.close()

    def _ask(self, what: str, **about: Any) -> dict[str, Any]:
        with self.lock:
            deadline = time.monotonic() + self.limit
            try:
                self.stream.settimeout(self.limit)
                self.stream.sendall(self.seal.close(json.dumps({"what": what, **about}).encode()))
                told = json.loads(self.seal.open(self._receive(deadline)))
            except (OSError, Stranger, ValueError) as error:
                raise Gone(f"the meeting point does not answer ({error})") from error
        _check_quarrel(told)
        return told

    def _receive(self, deadline: float) -> bytes:
        """Return the next frame; raise a TimeoutError if it is not complete by the deadline."""
        while (content := self.frames.next()) is None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("timed out")
            self.stream.settimeout(left)
            came = self.stream.recv(1 << 16)
            if not came:
                raise ConnectionError("it has closed the connection")
            self.frames.feed(came)
        return content


def _check_quarrel(told: dict[str, Any]) -> None:
    if "quarrel" in told:
        raise InputError(told["quarrel"])


def enter(
    rank: int, size: int, address: tuple[str, int], secret: bytes, timeout: float, deadline: float
) -> RendezvousStore | str:
    """Connect to the meeting point, with as many attempts as it takes; return what failed if the deadline passes."""
    while True:
        left = max(0.1, deadline - time.monotonic())
        try:
            stream = socket.create_connection(address, timeout=left)
        except socket.gaierror:
            failure = f": the host {address[0]} is unknown; correct MASTER_ADDR (torchrun: --master-addr)"
        except OSError as error:
            failure = f": is worker 0 running, and can this machine reach that address? ({error.strerror or error})"
        else:
            stream.settimeout(min(left, SECONDS))
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                return RendezvousStore(stream, rank, size, secret, timeout)
            except (OSError, Stranger, ValueError) as error:
                stream.close()
                if isinstance(error, InputError):
                    raise
                reason = "what listens there does not answer" if isinstance(error, TimeoutError) else str(error)
                remedy = "does another program have that port? Give another MASTER_PORT (torchrun: --master-port)"
                failure = f" ({reason}): {remedy}"
            except WorkerError:
                stream.close()
                raise
        if time.monotonic() > deadline:
            return failure
        time.sleep(0.1)
