"""Requests are answered at any time, waits end, and strangers at the port do no harm."""

from __future__ import annotations

import os
import resource
import socket
import struct
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch
import zmq

from isthmus.comm import Hub, Where
from isthmus.comm.rpc import LATER, Service, service
from isthmus.comm.rpc.door import WINDOW
from isthmus.comm.rpc.wire import Malformed, pack, unpack
from isthmus.errors import InputError, WorkerError

END = Where("end", "reduce", 0)
ROWS = torch.arange(300.0).view(-1, 3)


def rows(request):
    return [ROWS[request.tensors[0]] + request.asker]


def serving(hub, answer, work):
    """Every worker of a hub serves, and works; none leaves before the others are done."""

    def body(transport):
        mine = Service(transport, answer(transport) if answer is not rows else rows)
        try:
            found = work(mine, transport)
            transport.all_reduce(torch.zeros(1), END)
            return found
        finally:
            mine.close()

    return hub.run(body)


@pytest.fixture
def apart(monkeypatch):
    """Every worker believes to be on a machine of its own, so that requests take the encrypted port."""
    monkeypatch.setattr(service, "this_machine", lambda: threading.current_thread().name)
    monkeypatch.setattr("isthmus.comm.rpc.door.this_machine", lambda: threading.current_thread().name)
    monkeypatch.setenv("ISTHMUS_SECRET", "a secret of this run alone")


@pytest.mark.parametrize("between", ["one machine", "machines"])
def test_answers(between, request):
    if between == "machines":
        request.getfixturevalue("apart")

    def work(mine, transport):
        ids = torch.tensor([4, 0, 4])
        asked = [mine.ask(q, "pull x", 3, {}, [ids]) for q in transport.peers * 7]  # more than may be under way
        return [torch.equal(reply.wait(20)[0], ROWS[ids] + transport.rank) for reply in asked]

    assert serving(Hub(3), rows, work) == [[True] * 14] * 3


def test_errors_name_worker_request_and_step():
    def answer(transport):
        def find(request):
            if request.what == "pull nothing":
                raise InputError("the store has no 'nothing'")
            return LATER

        return find

    def work(mine, transport):
        peer = 1 - transport.rank
        with pytest.raises(
            WorkerError, match=rf"worker {transport.rank} asked worker {peer} for pull nothing \(step 5\)"
        ):
            mine.ask(peer, "pull nothing", 5, {}, []).wait(20)
        with pytest.raises(WorkerError, match=rf"worker {peer} for pull x \(step 6\): no answer in time"):
            mine.ask(peer, "pull x", 6, {}, []).wait(0.01)
        for _ in range(WINDOW - 1):
            mine.ask(peer, "pull x", 6, {}, [])
        mine.timeout = 0.01
        with pytest.raises(WorkerError, match=f"{WINDOW} requests to it are not answered"):
            mine.ask(peer, "pull x", 6, {}, [])

    serving(Hub(2), answer, work)


def test_an_answer_that_is_known_later():
    def answer(transport):
        def find(request):
            return [torch.tensor(transport.known)] if hasattr(transport, "known") else LATER

        return find

    def work(mine, transport):
        reply = mine.ask(1 - transport.rank, "pull x", 0, {}, [])
        with pytest.raises(WorkerError, match="no answer in time"):
            reply.wait(0.01)
        transport.all_reduce(torch.zeros(1), END)
        transport.known = transport.rank
        mine.again()
        return int(reply.wait(20)[0])

    assert serving(Hub(2), answer, work) == [1, 0]


def test_a_worker_that_ends_is_named():
    def work(transport):
        mine = Service(transport, rows if transport.rank else lambda request: LATER)
        try:
            if transport.rank == 0:
                transport.all_reduce(torch.zeros(1), END)  # the request is under way
                time.sleep(0.1)
                return ""
            reply = mine.ask(0, "pull x", 9, {}, [torch.tensor([1])])
            transport.all_reduce(torch.zeros(1), END)
            with pytest.raises(WorkerError) as lost:
                reply.wait(20)
            with pytest.raises(WorkerError, match="it has ended"):
                mine.ask(0, "pull y", 10, {}, [torch.tensor([1])]).wait(20)
            return str(lost.value)
        finally:
            mine.close()

    assert "worker 1 asked worker 0 for pull x (step 9): it has ended" in Hub(2).run(work)[1]


def memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


class Stranger:
    """Somebody who reaches the port of a worker's store, and does not know the run secret."""

    def __init__(self, endpoint: str):
        self.endpoint = endpoint
        host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
        self.address = host, int(port)

    def throw(self, content: bytes, times: int = 1) -> None:
        with suppress(OSError), socket.create_connection(self.address, timeout=5) as stream:
            for _ in range(times):
                stream.sendall(content)

    def ask(self, **options: bytes | int) -> None:
        """Comes with ZeroMQ itself; nobody answers."""
        with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
            dealer.linger = 0
            for name, value in options.items():
                setattr(dealer, name, value)
            dealer.routing_id = b"worker-1"
            dealer.connect(self.endpoint)
            dealer.send_multipart(pack({"what": "pull x", "step": 0, "about": {}, "number": 1}, [torch.tensor([1])]))
            assert not dealer.poll(300)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc to see how much memory is held")
def test_strangers_at_the_port(apart, capsys):
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"CURVE".ljust(20, b"\0") + bytes(32)

    def work(mine, transport):
        if transport.rank == 0:
            stranger = Stranger(mine.door.address.port)
            before = memory()
            silent = [socket.create_connection(stranger.address) for _ in range(300)]
            stranger.throw(os.urandom(1 << 20))
            stranger.throw(b"GET / HTTP/1.1\r\n\r\n")
            stranger.throw(greeting + b"\x06" + struct.pack("!Q", 1 << 40) + bytes(1 << 20), 64)
            for _ in range(20):
                stranger.throw(greeting + b"\x06" + struct.pack("!Q", 1 << 19) + bytes(1 << 18))
            stranger.ask()
            public, secret = zmq.curve_keypair()
            stranger.ask(curve_publickey=public, curve_secretkey=secret, curve_serverkey=zmq.curve_keypair()[0])
            # Even one who has found out the public key is refused, since it has not the secret one.
            stranger.ask(curve_publickey=public, curve_secretkey=secret, curve_serverkey=mine.door.keys.public)
            assert memory() - before < 64 << 20
            for stream in silent:
                stream.close()
        transport.all_reduce(torch.zeros(1), END)
        peer = 1 - transport.rank
        return mine.ask(peer, "pull x", 0, {}, [torch.tensor([7])]).wait(20)[0].tolist()

    assert serving(Hub(2), rows, work) == [[(ROWS[7] + q).tolist()] for q in range(2)]
    said = capsys.readouterr().err
    assert "connection(s) to worker 0's store were not of this run, and were dropped" in said
    assert int(said.split()[1].replace(",", "")) >= 300


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b"no json"],
        [b'{"tensors": [["int64", [2]]]}', b"too short"],
        [b'{"tensors": [["object", [1]]]}', b"12345678"],
        [b'{"tensors": [["int64", [-1]]]}', b"12345678"],
        [b'{"tensors": [["int64", [1]]]}'],
        [b"[]"],
        [b"[" * 4000],
        [b" " * 5000],
        [b"{}"] * 20,
    ],
)
def test_malformed_messages(frames):
    with pytest.raises(Malformed):
        unpack(frames)


@pytest.mark.parametrize("tensor", [torch.empty(0, 3), torch.ones(2, 3, dtype=torch.bfloat16), torch.tensor(5)])
def test_messages_and_back(tensor):
    header, (found,) = unpack(pack({"number": 3}, [tensor]))
    assert header == {"number": 3}
    assert found.dtype == tensor.dtype
    assert torch.equal(found, tensor)
