"""The thread of a worker that asks others and answers them, beside its training."""

from __future__ import annotations

import json
import os
import queue
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import zmq
from torch import Tensor

from isthmus.comm.ledger import Where
from isthmus.comm.rpc.door import WINDOW, Address, Dialled, Door, Keys, this_machine
from isthmus.comm.rpc.handle import Reply
from isthmus.comm.rpc.wire import Malformed, pack, unpack
from isthmus.comm.secret import run_secret
from isthmus.comm.transport import Transport
from isthmus.errors import InputError, WorkerError

LATER: Final = None
"""The answer that is not known yet: the request is looked at again when something has changed."""
_ENDED = "it has ended; its own last lines say why, and --resume goes on from the last checkpoint"


@dataclass(frozen=True)
class Request:
    """A question to this worker."""

    what: str
    step: int
    asker: int
    about: dict[str, Any]
    tensors: list[Tensor]


Answer = Callable[[Request], list[Tensor] | None]


@dataclass
class _Peer:
    """Another worker as this one sees it."""

    rank: int
    dialled: Dialled
    room: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(WINDOW))
    under_way: dict[int, Reply] = field(default_factory=dict)
    ended: bool = False


@dataclass(frozen=True)
class _Waiting:
    """A request that cannot be answered yet."""

    socket: zmq.Socket
    identity: Any
    number: int
    request: Request
    until: float


class Service:
    """Asks other workers, from any thread, and answers them in a thread of its own.

    ``answer`` gets every request; it returns tensors, or `LATER`. What it raises is told to the asker. At most `WINDOW`
    requests to one worker are under way at once; a further one waits for its turn. All workers make it at the same
    time; their addresses and the number from which keys are derived are exchanged by ``transport``.
    """

    def __init__(self, transport: Transport, answer: Answer):
        self.rank, self.size, self.timeout, self.answer = transport.rank, transport.size, transport.timeout, answer
        where, machine = Where("store", "setup", 0, "ids"), this_machine()
        told = [
            json.loads(words) for words in transport.gather_words(json.dumps([machine, secrets.token_hex(16)]), where)
        ]
        others = any(there != machine for there, _ in told)
        self.door = Door(self.rank, transport.host if others else "", Keys.of(run_secret(), told[0][1]), others)
        self.strange = 0  # messages that no worker of this version writes
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        self._leaving: queue.SimpleQueue[tuple[_Peer, list[Any], int, Reply]] = queue.SimpleQueue()
        self._waiting: list[_Waiting] = []
        self._number, self._ended = 0, False
        self._lock = threading.Lock()
        addresses = [
            Address(*json.loads(words)) for words in transport.gather_words(json.dumps(self.door.address), where)
        ]
        self._peers = {q: _Peer(q, self.door.dial(addresses[q])) for q in transport.peers}
        self._thread = threading.Thread(target=self._serve, name="store", daemon=True)
        self._thread.start()

    def ask(self, peer: int, what: str, step: int, about: dict[str, Any], tensors: Sequence[Tensor]) -> Reply:
        """Ask a worker; return the reply that will be filled in. ``about``: what json can say, in few words."""
        reply = Reply(f"worker {self.rank} asked worker {peer} for {what} (step {step})")
        there = self._peers[peer]
        if not there.room.acquire(timeout=self.timeout):
            raise WorkerError(
                f"{reply.words}: {WINDOW} requests to it are not answered within {self.timeout:g} s; look at that "
                "worker's own last lines"
            )
        with self._lock:
            self._number += 1
            number = self._number
        header = {"what": what, "step": step, "about": about, "number": number}
        self._leaving.put((there, pack(header, tensors), number, reply))
        self.again()
        return reply

    def again(self) -> None:
        """Look again at requests whose answers were not known yet, and at what is to leave."""
        try:
            os.write(self._wake, b"!")
        except OSError:  # the pipe is full, so the thread will wake anyway; or the service is closed
            return

    def close(self) -> None:
        """End the thread and disconnect; nobody may need an answer of this worker any more."""
        if self._ended:
            return
        self._ended = True
        self.again()
        self._thread.join(self.timeout)
        os.close(self._wake)
        os.close(self._woken)

    def _serve(self) -> None:
        door, poller = self.door, zmq.Poller()
        attend: dict[Any, Callable[[], None]] = {self._woken: self._send, door.zap: door.admit}
        for socket, monitor in door.listening:
            attend[socket] = lambda socket=socket: self._hear(socket)  # type: ignore[misc]
            attend[monitor] = lambda monitor=monitor: door.count(monitor)  # type: ignore[misc]
        for peer in self._peers.values():
            attend[peer.dialled.socket] = lambda peer=peer: self._receive(peer)  # type: ignore[misc]
            attend[peer.dialled.monitor] = lambda peer=peer: self._watch(peer)  # type: ignore[misc]
        for thing in attend:
            poller.register(thing, zmq.POLLIN)
        try:
            while not self._ended:
                for thing, _ in poller.poll():
                    attend[thing]()
        finally:
            for peer in self._peers.values():
                self._lose(peer, "this worker has closed its store")
            door.close()

    def _send(self) -> None:
        """Send what other threads ask, and look again at what could not be answered."""
        os.read(self._woken, 1 << 16)
        self._look_again()
        while not self._leaving.empty():
            peer, frames, number, reply = self._leaving.get()
            if peer.ended:
                peer.room.release()
                reply.fill([], _ENDED)
                continue
            peer.under_way[number] = reply
            peer.dialled.socket.send_multipart(frames, copy=False)

    def _hear(self, socket: zmq.Socket) -> None:
        """Answer a request."""
        identity, *frames = socket.recv_multipart(copy=False)
        try:
            header, tensors = unpack(frames)
            word, _, asker = identity.bytes.decode().partition("-")
            request = Request(str(header["what"]), int(header["step"]), int(asker), dict(header["about"]), tensors)
            number = int(header["number"])
            if word != "worker" or not 0 <= request.asker < self.size:
                raise Malformed("not a worker")
        except (Malformed, KeyError, ValueError, TypeError):
            self.strange += 1
            return
        waiting = _Waiting(socket, identity, number, request, time.monotonic() + self.timeout)
        if not self._answered(waiting):
            self._waiting.append(waiting)
        elif self._waiting:
            self._look_again()

    def _look_again(self) -> None:
        now = time.monotonic()
        self._waiting = [one for one in self._waiting if now < one.until and not self._answered(one)]

    def _answered(self, one: _Waiting) -> bool:
        """Answer a request, if its answer is known."""
        try:
            found = self.answer(one.request)
            if found is LATER:
                return False
            frames = pack({"number": one.number}, found)
        except Exception as error:  # whatever is asked, the others are still answered
            words = str(error) if isinstance(error, InputError | WorkerError) else f"{type(error).__name__}: {error}"
            frames = pack({"number": one.number, "error": words[:500]}, [])
        try:
            one.socket.send_multipart([one.identity, *frames], flags=zmq.NOBLOCK, copy=False)
        except zmq.ZMQError:  # it has ended, or asks more than it may
            self.strange += 1
        return True

    def _receive(self, peer: _Peer) -> None:
        try:
            header, tensors = unpack(peer.dialled.socket.recv_multipart(copy=False))
            reply = peer.under_way.pop(int(header["number"]))
        except (Malformed, KeyError, ValueError, TypeError):
            self.strange += 1
            return
        peer.room.release()
        reply.fill(tensors, str(header.get("error", "")))

    def _watch(self, peer: _Peer) -> None:
        if peer.dialled.has_ended():
            self._lose(peer, _ENDED)

    def _lose(self, peer: _Peer, why: str) -> None:
        peer.ended = True
        for reply in peer.under_way.values():
            peer.room.release()
            reply.fill([], why)
        peer.under_way.clear()
