"""Rows arrive where they should, bytes are counted, and nobody waits for ever."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest
import torch
import torch.distributed as dist

from isthmus.comm import Hub, Where
from isthmus.comm.meet import within
from isthmus.errors import WorkerError

HERE = Where(2, "forward", 7)


def test_exchange_and_its_bytes():
    def work(transport):
        send = [torch.full((transport.rank + 1, 3), float(10 * transport.rank + q)) for q in range(3)]
        recv = [torch.zeros(q + 1, 3) for q in range(3)]
        transport.exchange(send, recv, HERE).wait()
        return recv, transport.ledger.take()

    results = Hub(3).run(work)
    for rank, (recv, ledger) in enumerate(results):
        for q in range(3):
            expected = 0.0 if q == rank else 10.0 * q + rank
            assert (recv[q] == expected).all()
        assert ledger.bytes == {(2, "forward", q): (rank + 1) * 12 for q in range(3) if q != rank}
        assert ledger.rows == {(2, "forward", q): rank + 1 for q in range(3) if q != rank}


def test_threads_refuse_what_processes_would():
    def work(transport):
        dtype = torch.float32 if transport.rank else torch.bfloat16
        transport.exchange([torch.ones(2, 3, dtype=dtype)] * 2, [torch.ones(2, 3, dtype=dtype)] * 2, HERE).wait()

    words = r"expects \(2, 3\) (bfloat16|float32) from worker . \(site 2, forward, step 7\), not \(2, 3\)"
    with pytest.raises(WorkerError, match=words):
        Hub(2).run(work)


def test_reduce_and_gather():
    def work(transport):
        total = transport.all_reduce(torch.full((2,), float(transport.rank)), HERE)
        return total, transport.all_gather(torch.arange(transport.rank), HERE)

    for total, gathered in Hub(4).run(work):
        assert total.tolist() == [6.0, 6.0]
        assert [part.tolist() for part in gathered] == [[], [0], [0, 1], [0, 1, 2]]


def test_what_is_not_urgent_leaves_at_release_or_when_waited_for():
    def work(transport):
        peer, gone = 1 - transport.rank, transport.hub.boxes[transport.rank, 1 - transport.rank]
        recv = [[torch.zeros(1, 1) for _ in range(2)] for _ in range(3)]
        first, second = (
            transport.exchange([torch.full((1, 1), value)] * 2, into, HERE, later=True)
            for value, into in zip((1.0, 2.0), recv, strict=False)
        )
        before = len(gone.letters)
        transport.all_reduce(torch.ones(1), HERE)  # passes them
        transport.release()
        transport.exchange([torch.full((1, 1), 3.0)] * 2, recv[2], HERE, later=True).wait()
        second.wait()
        first.wait()
        return before, [float(block[peer]) for block in recv]

    for before, received in Hub(2).run(work):
        assert before == 0
        assert received == [1.0, 2.0, 3.0]


def test_silent_worker_is_named():
    def work(transport):
        if transport.rank == 0:
            transport.exchange([torch.ones(1, 1)] * 2, [torch.ones(1, 1)] * 2, HERE).wait()

    with pytest.raises(WorkerError, match=r"worker 0 waited 0.2 s for worker 1 \(site 2, forward, step 7\)"):
        Hub(2, timeout=0.2).run(work)


SCRIPT = """
import os, sys, time, torch
import torch.distributed as dist
from isthmus.comm import Processes, Where
from isthmus.comm.meet import meet
rank, size, port, started, mode = *map(int, sys.argv[1:5]), sys.argv[5]
store = dist.TCPStore("127.0.0.1", port, is_master=False)
store.add("imported", 1)
while store.add("imported", 0) < started:  # on a busy machine that takes longer for one than the others wait below
    time.sleep(0.01)
if rank == 1 and mode == "meet":
    meet(rank, size, "127.0.0.1", port, timeout=4)
    os._exit(0)
if rank == 1 and mode == "elsewhere":
    os.environ["GLOO_SOCKET_IFNAME"] = "nowhere"
if rank == 1 and mode == "hang":
    dist.init_process_group = lambda *a, **k: time.sleep(8)
try:
    links = Processes(rank, size, "127.0.0.1", port, timeout=4)
    send, recv = [torch.full((3, 2), 1.0 + rank)] * size, [torch.zeros(3, 2) for _ in range(size)]
    links.exchange(send, recv, Where(0, "forward", 1)).wait()
    assert all((recv[q] == 1 + q).all() for q in links.peers)
    assert links.all_reduce(torch.ones(1), Where("weights", "reduce", 1)).item() == size
    if rank == 1 and mode == "die":
        os._exit(9)
    if rank == 1 and mode == "sleep":
        time.sleep(6)
    links.exchange(send, recv, Where(1, "backward", 2)).wait()
    links.close()
except Exception as error:
    print(f"{type(error).__name__}: {error}")
"""


def processes(ranks: list[int], size: int, mode: str) -> dict[int, str]:
    """Return the last line of each worker process."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    environ = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT)]
    numbers = [size, store.port, len(ranks)]
    started = {
        rank: subprocess.Popen(
            [*command, *map(str, [rank, *numbers]), mode], env=environ, stdout=subprocess.PIPE, text=True
        )
        for rank in ranks
    }
    return {rank: process.communicate(timeout=60)[0].strip() for rank, process in started.items()}


def test_processes_exchange():
    assert processes([0, 1, 2], 3, "well") == {0: "", 1: "", 2: ""}


def test_lost_worker_is_named():
    said = processes([0, 1, 2], 3, "die")
    assert "lost worker 1 (site 1, backward, step 2)" in said[0]
    assert "lost worker 1 (site 1, backward, step 2)" in said[2]


def test_slow_worker_is_named():
    assert "worker 0 waited 4 s for worker 1 (site 1, backward, step 2)" in processes([0, 1], 2, "sleep")[0]


def test_absent_worker_is_named():
    said = processes([0, 2], 3, "well")
    for rank in (0, 2):
        assert said[rank].startswith("WorkerError: worker 1 of 3 did not arrive")


@pytest.mark.parametrize("mode", ["meet", pytest.param("elsewhere", marks=pytest.mark.full)])
def test_worker_that_met_but_does_not_connect_is_named(mode):
    """The worker ends after the meeting; or its interface does not exist, which it says itself."""
    said = processes([0, 1, 2], 3, mode)
    for rank in (0, 2):
        expected = f"WorkerError: worker {rank} of 3 met the others, but worker 1 did not connect within 4 s: "
        assert said[rank].startswith(expected)
    assert mode == "meet" or "worker 1 of 3 met the others, but cannot connect to them" in said[1]


def test_workers_that_cannot_connect_name_each_other():
    """One of two hangs while it connects."""
    said = processes([0, 1], 2, "hang")
    for rank in (0, 1):
        assert f"worker {rank} of 2 met the others, but worker {1 - rank} did not connect within 4 s" in said[rank]


def test_an_error_of_another_kind_is_no_silence():
    with pytest.raises(ValueError, match="invalid literal"):
        within(60, lambda: int("what?"))


def test_failed_thread_ends_the_others_at_once():
    def work(transport):
        if transport.rank == 1:
            raise KeyError("the cause")
        transport.exchange([torch.ones(1, 1)] * 3, [torch.ones(1, 1)] * 3, HERE).wait()

    with pytest.raises(KeyError, match="the cause"):
        Hub(3, timeout=3600).run(work)
