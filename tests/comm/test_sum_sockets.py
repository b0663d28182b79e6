"""The sockets of sums: messages of any size arrive whole and in order, strangers are dropped, trouble is named."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import suppress

import pytest
import torch

from isthmus.comm.sum_sockets import _PENDING, Astray, Lost, Silent, SumSockets

HERE = "127.0.0.1"


class Board:
    """What workers tell each other at the meeting point."""

    def __init__(self):
        self.told, self.changed = {}, threading.Condition()

    def set(self, key, value):
        with self.changed:
            self.told[key] = value.encode()
            self.changed.notify_all()

    def get(self, key):
        with self.changed:
            assert self.changed.wait_for(lambda: key in self.told, 20)
            return self.told[key]


def together(size, work, board=None, limit=20.0):
    """Run work(rank, sockets) on every worker, as threads; return the results, or the errors, in rank order."""
    board, results = board or Board(), [None] * size

    def body(rank):
        sockets = SumSockets.between(rank, size, board, HERE, limit)
        try:
            results[rank] = work(rank, sockets)
        except Exception as error:
            results[rank] = error
        finally:
            if sockets is not None:
                sockets.close()

    threads = [threading.Thread(target=body, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_messages_arrive_whole_and_in_order():
    """Some larger than the sockets hold, some of another length for every peer, some empty."""
    cases = [(torch.float64, 1), (torch.bfloat16, 7), (torch.int64, 3_000_000), (torch.float32, 0)]

    def work(rank, sockets):
        for number, (dtype, count) in enumerate(cases):
            send = [torch.full((count * (rank + 1), 2), rank + 1).to(dtype) for _ in range(3)]
            recv = [torch.zeros(count * (q + 1), 2, dtype=dtype) for q in range(3)]
            sockets.exchange(number, send, recv, 60)
            for q in {0, 1, 2} - {rank}:
                assert (recv[q] == q + 1).all()
        return "well"

    assert together(3, work) == ["well"] * 3


def test_messages_of_unknown_length_arrive_in_one_hop():
    def work(rank, sockets):
        found = []
        for turn in range(3):  # also none at all, and more than a socket takes at once
            mine = [torch.arange((rank + 2 * q) * turn * 40_000, dtype=torch.int32) + rank for q in range(3)]
            found.append({q: (len(one), one.sum().item()) for q, one in sockets.trade(turn, mine, 20.0).items()})
        return found

    for rank, turns in enumerate(together(3, work)):
        for turn, found in enumerate(turns):
            sizes = {q: (q + 2 * rank) * turn * 40_000 for q in range(3) if q != rank}
            assert found == {q: (n, n * (n - 1) // 2 + q * n) for q, n in sizes.items()}


def test_strangers_are_dropped():
    """More of them than may wait: with no token, half of one, a wrong one, or with not a word."""

    class Crowded(Board):
        def set(self, key, value):
            if key == "sums/0":
                _, port, _ = json.loads(value)
                self.strangers = [socket.create_connection((HERE, port)) for _ in range(_PENDING // 2)]
                for k, stranger in enumerate(self.strangers):
                    stranger.sendall([b"", b"x" * 18, b"y" * 36, b"z" * 100][k % 4])
            super().set(key, value)

    board = Crowded()

    def work(rank, sockets):
        recv = [torch.zeros(1), torch.zeros(1)]
        sockets.exchange(0, [torch.full((1,), rank + 1.0)] * 2, recv, 20)
        return float(recv[1 - rank])

    assert together(2, work, board) == [2.0, 1.0]
    for stranger in board.strangers:
        stranger.settimeout(5)
        with suppress(ConnectionError):
            assert stranger.recv(1) == b""
        stranger.close()


def test_workers_that_cannot_reach_each_other_do_without():
    class Misled(Board):
        def set(self, key, value):
            if key == "sums/0":
                with socket.create_server((HERE, 0)) as closed:
                    port = closed.getsockname()[1]
                value = json.dumps([HERE, port, "00" * 32])
            super().set(key, value)

    assert together(3, lambda rank, sockets: sockets, Misled(), limit=0.5) == [None] * 3


@pytest.mark.parametrize(("trouble", "error"), [("silent", Silent), ("gone", Lost), ("astray", Astray)])
def test_trouble_names_the_worker(trouble, error):
    done = threading.Event()

    def work(rank, sockets):
        message = [torch.ones(3)] * 2
        if rank == 1 and trouble == "silent":
            return done.wait(20)
        if rank == 1 and trouble == "gone":
            return None
        try:
            sockets.exchange(7 + rank, message, [torch.zeros(3), torch.zeros(3)], 0.3)
        finally:
            done.set()

    found = together(2, work)[0]
    assert type(found) is error
    assert found.peer == 1
