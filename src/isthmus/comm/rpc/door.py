"""The sockets at which a worker is asked: a file for workers of the same machine, an encrypted port for others.

Between machines both sides prove that they know the run secret by CURVE, ZeroMQ's handshake: its keys are derived from
the secret and a number drawn for the run, every client has to show the one public key that follows from them, and
everything is encrypted with keys of that connection alone. The file is in a folder that only this user can enter. A
stranger has `SECONDS` for the handshake and `MOST_OF_A_REQUEST` bytes; what is not of this run is dropped and counted.
"""

from __future__ import annotations

import hmac
import os
import platform
import shutil
import socket
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import zmq
from zmq.utils import z85
from zmq.utils.monitor import recv_monitor_message

from isthmus.comm.frames import key_of
from isthmus.comm.rendezvous import EVERYWHERE, is_loopback
from isthmus.comm.rpc.wire import MOST_OF_A_REQUEST
from isthmus.console import note
from isthmus.errors import WorkerError

SECONDS = 5  # for a handshake
WINDOW = 8  # requests of one worker to another that are under way at once
_ZAP = "inproc://zeromq.zap.01"
_BEATS = 5000  # milliseconds between signs of life, of which six may be missing
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Keys(NamedTuple):
    """A CURVE key pair in ZeroMQ's own letters; all workers of a run have the same."""

    public: bytes
    secret: bytes

    @staticmethod
    def of(run_secret: bytes, nonce: str) -> Keys:
        secret = z85.encode(hmac.digest(key_of(run_secret), b"requests\0" + nonce.encode(), "sha256"))
        return Keys(zmq.curve_public(secret), secret)


class Address(NamedTuple):
    """Where a worker is asked: by workers of the same machine, and by others."""

    machine: str
    file: str
    port: str

    def seen_from(self, machine: str) -> tuple[str, bool]:
        """Return the endpoint for a worker on that machine, and whether it is encrypted."""
        return (self.file, False) if machine == self.machine else (self.port, True)


def this_machine() -> str:
    """Return words that are the same for all processes which share this machine, its network and its files."""
    boot = _BOOT.read_text().strip() if _BOOT.exists() else ""
    rooms = [os.readlink(path) for name in ("net", "mnt") if (path := Path("/proc/self/ns") / name).exists()]
    return " ".join([platform.node(), boot, *rooms])


class Dialled(NamedTuple):
    """A socket, and another one that tells what happens to its connections."""

    socket: zmq.Socket
    monitor: zmq.Socket

    def has_ended(self) -> bool:
        """Return whether the worker at the other end was there, and is not any more."""
        ended = False
        while self.monitor.poll(0):
            ended |= recv_monitor_message(self.monitor)["event"] == zmq.EVENT_DISCONNECTED
        return ended


class Door:
    """The listening sockets of one worker, used by one thread only."""

    def __init__(self, rank: int, host: str, keys: Keys, others: bool):
        """``host``: this worker's address for other machines; ``others``: whether there are workers on some."""
        self.rank, self.keys = rank, keys
        self.context = zmq.Context()
        self.context.set(zmq.MAX_SOCKETS, 4096)
        self.folder = Path(tempfile.mkdtemp(prefix="isthmus-ask-"))  # mode 0700
        self.zap = self.context.socket(zmq.REP)
        self.zap.bind(_ZAP)
        self.listening: list[Dialled] = []
        self.accepted = self.proven = 0
        file, port = f"ipc://{self.folder / str(rank)}", ""
        self._router().bind(file)
        if others:
            router = self._router()
            router.curve_server = True
            router.curve_publickey, router.curve_secretkey = keys
            router.zap_domain = b"isthmus"
            port = self._listen(router, host)
        self.address = Address(this_machine(), file, port)

    def _router(self) -> zmq.Socket:
        router = _calm(self.context.socket(zmq.ROUTER))
        router.maxmsgsize = MOST_OF_A_REQUEST
        router.handshake_ivl = SECONDS * 1000
        router.router_mandatory = True
        monitor = router.get_monitor_socket(zmq.EVENT_ACCEPTED | zmq.EVENT_HANDSHAKE_SUCCEEDED)
        self.listening.append(Dialled(router, monitor))
        return router

    def _listen(self, router: zmq.Socket, host: str) -> str:
        """Bind a port at this address, or at all if none here has it (behind address translation)."""
        found = [str(entry[4][0]) for entry in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)]
        found = [one for one in found if is_loopback(host) or not is_loopback(one)]
        router.ipv6 = any(":" in one for one in found)
        name = f"[{host}]" if ":" in host else host
        for bound in (*(f"[{one}]" if ":" in one else one for one in found), EVERYWHERE):
            with suppress(zmq.ZMQError):
                router.bind(f"tcp://{bound}:*")
                number = bytes(router.getsockopt(zmq.LAST_ENDPOINT)).decode().rstrip("\0").rpartition(":")[2]
                return f"tcp://{name}:{number}"
        raise WorkerError(f"worker {self.rank} cannot listen at {host}: give an address of this machine")

    def dial(self, peer: Address) -> Dialled:
        """Return a socket that asks a worker, and goes on trying until that worker is there."""
        endpoint, encrypted = peer.seen_from(self.address.machine)
        dealer = _calm(self.context.socket(zmq.DEALER))
        dealer.routing_id = f"worker-{self.rank}".encode()
        dealer.reconnect_ivl = 50
        if encrypted:
            dealer.ipv6 = "[" in endpoint
            dealer.curve_serverkey = self.keys.public
            dealer.curve_publickey, dealer.curve_secretkey = self.keys
        monitor = dealer.get_monitor_socket(zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED)
        dealer.connect(endpoint)
        return Dialled(dealer, monitor)

    def admit(self) -> None:
        """Answer ZeroMQ's question (RFC 27) whether a client is one of this run: it has to have the run's key."""
        version, number, _, _, _, mechanism, *credentials = self.zap.recv_multipart()
        shown = z85.encode(credentials[0]) if mechanism == b"CURVE" and credentials else b""
        known = hmac.compare_digest(shown, self.keys.public)
        status = (b"200", b"OK", b"isthmus", b"") if known else (b"400", b"a stranger", b"", b"")
        self.zap.send_multipart([version, number, *status])

    def count(self, monitor: zmq.Socket) -> None:
        """Take note of who comes."""
        while monitor.poll(0):
            event = recv_monitor_message(monitor)["event"]
            self.accepted += event == zmq.EVENT_ACCEPTED
            self.proven += event == zmq.EVENT_HANDSHAKE_SUCCEEDED

    def close(self) -> None:
        """Give back sockets and files, and say how many strangers there were."""
        for _, monitor in self.listening:
            self.count(monitor)
        self.context.destroy(linger=0)
        shutil.rmtree(self.folder, ignore_errors=True)
        if (strangers := self.accepted - self.proven) > 0:
            note(f"{strangers:,} connection(s) to worker {self.rank}'s store were not of this run, and were dropped")


def _calm(made: zmq.Socket) -> zmq.Socket:
    """Bound a socket's queues, and let it notice machines that are gone without a word."""
    made.sndhwm = made.rcvhwm = 2 * WINDOW
    made.heartbeat_ivl, made.heartbeat_timeout = _BEATS, 6 * _BEATS
    made.linger = 0
    return made
