"""Sockets between every two workers for sums: short messages that all workers send, and wait for at once.

A worker writes its message straight into the sockets and reads those of the others: what came before it asked is
already there. gloo takes two more messages for each, and a thread of its own that has to be woken for every one of
them; on busy processors that took ten times as long. Rows, which travel while workers compute, stay with gloo.

Addresses and a token of each worker are told at the meeting point; a connection without the token is dropped.
"""

from __future__ import annotations

import hmac
import json
import secrets
import select
import selectors
import socket
import struct
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

import torch
from torch import Tensor

from isthmus.comm.guest import RendezvousStore
from isthmus.comm.rendezvous import listen

_HEAD = struct.Struct("!QQ")  # of a message: the number of the transfer, and the bytes that follow
_HELLO = struct.Struct("!32sI")  # of a connection: the token of the worker that listens, the rank of the other
SECONDS = 5.0  # for connecting, and at most the limit of the run
_PENDING = 128  # connections at once that have not shown the token


class Silent(Exception):
    """An error: a worker has sent nothing within the limit."""

    def __init__(self, peer: int):
        self.peer = peer


class Lost(Exception):
    """An error: a worker has closed its connection."""

    def __init__(self, peer: int, why: str):
        super().__init__(why)
        self.peer = peer


class Astray(Lost):
    """An error: a worker has sent another message than was expected."""


class SumSockets:
    """The connections of one worker, by peer."""

    def __init__(self, streams: dict[int, socket.socket]):
        self.streams = streams
        for stream in streams.values():
            stream.setblocking(False)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @staticmethod
    def between(
        rank: int, size: int, store: RendezvousStore, address: str, limit: float, name: str = "sums"
    ) -> SumSockets | None:
        """Connect with all others, who call it at the same time; None if some two workers cannot reach each other.

        ``name``: of these connections, the same on all workers.
        """
        deadline, token = time.monotonic() + min(SECONDS, limit), secrets.token_bytes(32)
        listener = listen(address, 0)
        streams: dict[int, socket.socket] = {}
        with listener:
            host, port = listener.getsockname()[:2]
            store.set(f"{name}/{rank}", json.dumps([host, port, token.hex()]))
            try:
                for q in range(rank):
                    host, port, theirs = json.loads(store.get(f"{name}/{q}"))
                    streams[q] = socket.create_connection((host, port), max(0.1, deadline - time.monotonic()))
                    streams[q].sendall(_HELLO.pack(bytes.fromhex(theirs), rank))
                streams |= _accepted(listener, set(range(rank + 1, size)), token, deadline)
            except OSError:
                pass
        store.set(f"{name} connected/{rank}", str(int(len(streams) == size - 1)))
        if all(store.get(f"{name} connected/{q}") == b"1" for q in range(size)):
            return SumSockets(streams)
        for stream in streams.values():
            stream.close()
        return None

    def exchange(self, number: int, send: Sequence[Tensor], recv: Sequence[Tensor], limit: float) -> None:
        """Send ``send[q]`` to every peer q and receive ``recv[q]`` from it; empty messages do not travel.

        ``number`` is that of the transfer, the same on all workers.
        """
        leaving = {q: _Message(number, send[q]) for q in self.streams if send[q].numel()}
        arriving = {q: _Message(number, recv[q], blank=True) for q in self.streams if recv[q].numel()}
        self._move(leaving, arriving, time.monotonic() + limit)

    def trade(self, number: int, send: Sequence[Tensor], limit: float) -> dict[int, Tensor]:
        """Send ``send[q]`` to every peer q; return what each sends, of the same type but of any length.

        Messages are one-dimensional."""
        leaving: dict[int, _Message] = {q: _Message(number, send[q]) for q in self.streams}
        arriving = {q: _Unmeasured(number, send[q]) for q in self.streams}
        self._move(leaving, dict(arriving), time.monotonic() + limit)
        return {q: message.tensor for q, message in arriving.items()}

    def _move(self, leaving: dict[int, _Message], arriving: dict[int, _Message], deadline: float) -> None:
        """Let messages pass until none is left."""
        while leaving or arriving:
            moved = False
            for under_way, move in ((leaving, self._send), (arriving, self._receive)):
                for q, message in list(under_way.items()):
                    count = move(q, message)
                    moved |= bool(count)
                    if message.advance(count):
                        del under_way[q]
            if not moved:
                self._wait(leaving, arriving, deadline)

    def _send(self, peer: int, message: _Message) -> int:
        """Write as many bytes as the socket takes; return their number."""
        try:
            return self.streams[peer].sendmsg(message.rest)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise Lost(peer, str(error)) from error

    def _receive(self, peer: int, message: _Message) -> int:
        """Read the bytes that have arrived; return their number."""
        try:
            count = self.streams[peer].recvmsg_into(message.rest)[0]
        except BlockingIOError:
            return 0
        except OSError as error:
            raise Lost(peer, str(error)) from error
        if not count:
            raise Lost(peer, "it has closed the connection")
        if count >= len(message.rest[0]) and not message.is_expected():
            at, size = _HEAD.unpack(message.head)
            raise Astray(peer, f"it sent {size} bytes as transfer {at}, not {message.size} as {message.number}")
        return count

    def _wait(self, leaving: Iterable[int], arriving: Iterable[int], deadline: float) -> None:
        """Wait until a socket can go on."""
        poll = select.poll()
        for q in {*leaving, *arriving}:
            poll.register(self.streams[q], select.POLLIN * (q in arriving) | select.POLLOUT * (q in leaving))
        left = deadline - time.monotonic()
        if left <= 0 or not poll.poll(left * 1e3):
            raise Silent(next(iter([*arriving, *leaving])))

    def close(self) -> None:
        for stream in self.streams.values():
            stream.close()


class _Message:
    """A head and the memory of a tensor, and how much of them has not passed through the socket."""

    def __init__(self, number: int, tensor: Tensor, blank: bool = False):
        content = _bytes_of(tensor)
        self.number, self.size = number, len(content)
        self.expected = _HEAD.pack(number, self.size)
        self.head = bytearray(_HEAD.size) if blank else self.expected
        self.rest = [memoryview(self.head), content]

    def is_expected(self) -> bool:
        """Return whether the head that has arrived is that of the message which is waited for."""
        return bytes(self.head) == self.expected

    def advance(self, count: int) -> bool:
        """Count bytes as passed; return whether these were the last ones."""
        while self.rest and count >= len(self.rest[0]):
            count -= len(self.rest.pop(0))
        if count:
            self.rest[0] = self.rest[0][count:]
        return not self.rest


class _Unmeasured(_Message):
    """A message of which only the sender knows how long it is: its head says so, and memory is made then."""

    def __init__(self, number: int, like: Tensor):
        self.number, self.size, self.head = number, 0, bytearray(_HEAD.size)
        self.rest, self.tensor = [memoryview(self.head)], like.new_empty(0)
        self._measured = False

    def is_expected(self) -> bool:
        number, size = _HEAD.unpack(self.head)
        return number == self.number and not size % self.tensor.element_size()

    def advance(self, count: int) -> bool:
        if super().advance(count) and not self._measured:
            self._measured, (_, self.size) = True, _HEAD.unpack(self.head)
            self.tensor = self.tensor.new_empty(self.size // self.tensor.element_size())
            self.rest = [_bytes_of(self.tensor)] if self.size else []
        return not self.rest


def _bytes_of(tensor: Tensor) -> memoryview:
    """Return the memory of a tensor."""
    return memoryview(tensor.detach().view(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]


def _accepted(listener: socket.socket, ranks: set[int], token: bytes, deadline: float) -> dict[int, socket.socket]:
    """Return the connections of these workers, or of those that came in time; whoever lacks the token is dropped."""
    found: dict[int, socket.socket] = {}
    pending: dict[socket.socket, bytes] = {}  # what each has said so far; oldest first
    listener.setblocking(False)
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        while len(found) < len(ranks) and (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                stream = key.fileobj
                assert isinstance(stream, socket.socket)
                if stream is listener:
                    with suppress(OSError):
                        pending[guest := listener.accept()[0]] = b""
                        selector.register(guest, selectors.EVENT_READ)
                    if len(pending) <= _PENDING:
                        continue
                    stream = next(iter(pending))
                elif not _heard(stream, pending):
                    continue
                selector.unregister(stream)
                said = pending.pop(stream).ljust(_HELLO.size, b"\0")
                shown, rank = _HELLO.unpack(said)
                if hmac.compare_digest(shown, token) and rank in ranks and rank not in found:
                    found[rank] = stream
                else:
                    stream.close()
    for stream in pending:
        stream.close()
    return found


def _heard(stream: socket.socket, pending: dict[socket.socket, bytes]) -> bool:
    """Read on; return whether nothing more is to come."""
    came = b""
    with suppress(OSError):
        came = stream.recv(_HELLO.size - len(pending[stream]))
    pending[stream] += came
    return not came or len(pending[stream]) == _HELLO.size
