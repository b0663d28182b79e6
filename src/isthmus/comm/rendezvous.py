"""The meeting point: a small server, in worker 0 or the process that started the workers, to exchange addresses.

Others on the network can reach it. So no client is served before it has proven that it knows the run secret
(`comm.frames`), and everything is bounded: connections, time, the length of a frame, what a worker may store.
Strangers are dropped and counted. When all workers are connected to each other, no new connection is accepted.
"""

from __future__ import annotations

import base64
import errno
import json
import secrets
import selectors
import socket
import threading
import time
from contextlib import suppress
from typing import Any

from isthmus.comm.frames import (
    MAGIC,
    MOST_OF_A_STRANGER,
    NONCE,
    TAG,
    Seal,
    Stranger,
    Unframer,
    frame,
    key_of,
    proof,
    proven,
)
from isthmus.console import note

LOOPBACK = ("127.", "::1")
EVERYWHERE = "0.0.0.0"
BACKLOG = 128
SECONDS = 5.0  # for a client to prove that it knows the secret
STRANGERS = 128  # connections at once without that proof; plus two for each worker
KEYS = 64  # number of keys that a worker may store
KEY = 256  # characters of a key
REFUSED = b"no"
LAST_WORDS = 2.0  # seconds


def most_bytes(size: int) -> int:
    """Return how many bytes a frame, or all values stored by one worker, may have with this many workers."""
    return (64 + size) << 10


class Rendezvous:
    """A meeting point of ``size`` workers at an address of this machine; with port 0 the system chooses the port."""

    def __init__(self, host: str, port: int, size: int, secret: bytes):
        self.size, self.key = size, key_of(secret)
        self.listener: socket.socket | None = listen(host, port)
        self.listener.setblocking(False)
        address, self.port = self.listener.getsockname()[:2]
        self.here = ("127.0.0.1" if address == EVERYWHERE else address, self.port)  # for this machine itself
        self.strangers = 0
        self.pending: dict[_Guest, None] = {}  # oldest first
        self.guests: dict[int, _Guest] = {}
        self.values: dict[str, tuple[int, bytes]] = {}  # by key: the worker that stored it, and the value
        self.connected: set[int] = set()
        self.quarrel = ""
        self.selector = selectors.DefaultSelector()
        self.wake, self.woken = socket.socketpair()
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.selector.register(self.woken, selectors.EVENT_READ)
        self.ended = False
        self.thread = threading.Thread(target=self._serve, daemon=True, name="meeting point")
        self.thread.start()

    def __enter__(self) -> Rendezvous:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End it; workers still present before all have met get a short while to ask for the reason."""
        if self.ended:
            return
        deadline = time.monotonic() + LAST_WORDS
        while self.listener is not None and self._somebody_is_here() and time.monotonic() < deadline:
            time.sleep(0.02)
        self.ended = True
        self.wake.send(b"!")
        self.thread.join(SECONDS)
        self.wake.close()  # not by the thread: it may end by itself as soon as `ended` is set
        self.woken.close()

    def _somebody_is_here(self) -> bool:
        return any(guest.open for guest in list(self.guests.values()))

    def _serve(self) -> None:
        while not self.ended:
            for key, events in self.selector.select(timeout=0.5 if self.pending else None):
                if key.fileobj is self.listener:
                    self._accept()
                elif isinstance(key.data, _Guest) and key.data.open:
                    self._attend(key.data, events)
            self._hurry()
        self._shut()
        for guest in self.guests.values():
            guest.close()
        self.selector.close()

    def _accept(self) -> None:
        assert self.listener is not None
        try:
            stream, _ = self.listener.accept()
        except (BlockingIOError, ConnectionError):  # disconnected again
            return
        except OSError:  # too many open files
            self._drop_oldest()
            time.sleep(0.01)
            return
        if len(self.pending) >= STRANGERS + 2 * self.size:
            self._drop_oldest()
        guest = _Guest(stream, self.selector)
        self.pending[guest] = None
        try:
            guest.send(frame(MAGIC + guest.nonce))
        except OSError:
            self._drop(guest)

    def _drop_oldest(self) -> None:
        if self.pending:
            self._drop(next(iter(self.pending)))

    def _hurry(self) -> None:
        """Drop clients that did not prove themselves in time."""
        now = time.monotonic()
        for guest in [one for one in self.pending if now > one.deadline]:
            self._drop(guest)

    def _attend(self, guest: _Guest, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                guest.flush()
            if events & selectors.EVENT_READ:
                guest.receive()
                while guest.open and (content := guest.frames.next()) is not None:
                    if guest.seal is None:
                        self._let_in(guest, content)
                    else:
                        words = json.dumps(self._answer(guest, json.loads(guest.seal.open(content))))
                        guest.send(guest.seal.close(words.encode()))
                        self._all_met()
        except Exception:  # whatever a client does wrong, the others are still served
            self._drop(guest)

    def _let_in(self, guest: _Guest, content: bytes) -> None:
        """Read a hello; refuse a client without proof, and tell one with proof whether its rank is free."""
        nonce, tag, words = content[:NONCE], content[NONCE : NONCE + TAG], content[NONCE + TAG :]
        try:
            proven(tag, self.key, b"hello", guest.nonce, nonce, words)
        except Stranger:
            self.pending.pop(guest, None)
            self.strangers += 1  # before the client hears that it was refused
            guest.send(frame(REFUSED))
            guest.close()
            return
        hello = json.loads(words)
        rank, size = int(hello["rank"]), int(hello["size"])
        refusal: dict[str, str] = {}
        if size != self.size or not 0 <= rank < size:
            self.quarrel = (
                f"the workers do not agree: worker {rank} was told that there are {size} workers, the meeting point "
                f"that there are {self.size}: start every worker with the same number"
            )
            refusal = {"quarrel": self.quarrel}
        elif rank in self.guests and self.guests[rank].open:
            refusal = {"taken": self.guests[rank].peer}
        answer = json.dumps(refusal).encode()
        guest.send(frame(proof(self.key, b"answer", guest.nonce, nonce, answer) + answer))
        self.pending.pop(guest, None)
        if refusal:
            guest.close()
            return
        self.values = {key: value for key, value in self.values.items() if value[0] != rank}  # of a worker that is gone
        guest.enter(rank, Seal(self.key, guest.nonce, nonce, server=True), most_bytes(self.size))
        self.guests[rank] = guest

    def _answer(self, guest: _Guest, asked: dict[str, Any]) -> dict[str, Any]:
        if self.quarrel:
            return {"quarrel": self.quarrel}
        what = asked["what"]
        if what == "set":
            self._store(guest.rank, str(asked["key"]), base64.b64decode(asked["value"]))
        elif what == "get":
            found = self.values.get(str(asked["key"]))
            return {"value": None if found is None else base64.b64encode(found[1]).decode()}
        elif what == "check":
            return {"there": all(str(key) in self.values for key in asked["keys"])}
        elif what == "delete":
            return {"there": self.values.pop(str(asked["key"]), None) is not None}
        elif what == "connected":
            self.connected.add(guest.rank)
        else:
            raise Stranger(f"asks for {what}")
        return {}

    def _store(self, rank: int, key: str, value: bytes) -> None:
        own = {name: content for name, (who, content) in self.values.items() if who == rank and name != key}
        room = most_bytes(self.size) - sum(map(len, own.values()))
        if len(key) > KEY or len(own) >= KEYS or len(value) > room:
            raise Stranger("more than a worker may store")
        self.values[key] = rank, value

    def _all_met(self) -> None:
        """Stop listening when all workers are connected to each other."""
        if len(self.connected) == self.size:
            self._shut()

    def _drop(self, guest: _Guest) -> None:
        if self.pending.pop(guest, self) is None:
            self.strangers += 1
        guest.close()

    def _shut(self) -> None:
        """Stop listening, and note how many strangers were dropped."""
        if self.listener is None:
            return
        self.selector.unregister(self.listener)
        self.listener.close()
        self.listener = None
        for guest in list(self.pending):
            self._drop(guest)
        if self.strangers:
            note(f"{self.strangers:,} connection(s) to the meeting point were not of this run, and were dropped")


class _Guest:
    """One connection, which is a stranger's until it has a seal."""

    def __init__(self, stream: socket.socket, selector: selectors.BaseSelector):
        self.stream, self.selector = stream, selector
        stream.setblocking(False)
        self.peer = _named(stream)
        self.nonce, self.deadline = secrets.token_bytes(NONCE), time.monotonic() + SECONDS
        self.frames, self.out, self.most_out = Unframer(MOST_OF_A_STRANGER), bytearray(), MOST_OF_A_STRANGER
        self.rank, self.open = -1, True
        self.seal: Seal | None = None
        selector.register(stream, selectors.EVENT_READ, self)

    def enter(self, rank: int, seal: Seal, most: int) -> None:
        self.rank, self.seal = rank, seal
        self.frames.most, self.most_out = 2 * most, 4 * most
        self.stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def receive(self) -> None:
        content = self.stream.recv(1 << 16 if self.seal else MOST_OF_A_STRANGER)
        if not content:
            raise ConnectionError("has left")
        self.frames.feed(content)

    def send(self, content: bytes) -> None:
        self.out += content
        if len(self.out) > self.most_out:
            raise Stranger("asks, and does not listen")
        self.flush()

    def flush(self) -> None:
        if self.out:
            with suppress(BlockingIOError):
                del self.out[: self.stream.send(self.out)]
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self.out else 0)
        self.selector.modify(self.stream, events, self)

    def close(self) -> None:
        if self.open:
            self.open = False
            self.selector.unregister(self.stream)
            self.stream.close()


def _named(stream: socket.socket) -> str:
    try:
        return str(stream.getpeername()[0])
    except OSError:
        return "an address that is gone"


def is_loopback(host: str) -> bool:
    """Return whether the name of a host alone says that no other machine can reach it."""
    return host == "localhost" or host.startswith(LOOPBACK)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address of this machine, or at all of them if none leads to it from outside.

    That happens behind address translation, and if a machine's own name resolves to loopback only.
    """
    for family, kind, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        if is_loopback(str(address[0])) and not is_loopback(host):
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
