"""Rows of devices between two real processes: gloo carries copies on the hosts, and refuses the devices' own memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from device.plans import LIMIT, Plan, on_host, parts
from processes import free_port

from isthmus.comm import Processes, Transport, Where
from isthmus.partition import Book

PLANS = [Plan("exact", "sage"), Plan("pipegcn", "gat", {"bits": 8}), Plan("distdgl", "gcn")]


def trained(book: Book, transport: Transport) -> list[list[float]]:
    """The losses and scores of every plan, and the bytes that this worker sent."""
    found = []
    for plan in PLANS:
        transport.sent.clear()
        found.append([*plan.train(book, transport), sum(transport.sent.values())])
    return found


def work(rank: int, port: int, folder: str) -> None:
    """One of the two workers: train every plan and print what came of it."""
    import shadow

    shadow.install().visible = True
    transport = Processes(rank, 2, "127.0.0.1", port, timeout=60)
    try:
        transport.use(torch.device("shadow", 0))  # autograd has a thread for it, as for a device of CUDA
        told = transport.all_gather(torch.full((rank + 1,), float(rank), device="shadow:0"), Where("test", "setup", 0))
        found = trained(Book.read(folder), transport)
        print(json.dumps({"told": [rows.tolist() for rows in told], "found": found, "way": transport.way}))
    finally:
        transport.close()


def test_two_processes_give_the_numbers_of_two_threads_on_the_cpu(tmp_path):
    book, port = parts(tmp_path, 2), free_port()
    environ = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": str(Path(__file__).parents[1])}
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "device.test_processes", str(rank), str(port), str(book.folder)],
            env=environ,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]

    def alike(transport: Transport) -> list[list[float]]:
        transport.hosts_given = False  # processes find out that they are on one host
        return trained(book, transport)

    told = [json.loads(worker.communicate(timeout=200)[0].splitlines()[-1]) for worker in workers]

    for mine, cpus in zip(told, on_host(alike, 2), strict=True):
        assert mine["told"] == [[0.0], [1.0, 1.0]]
        assert mine["found"] == [pytest.approx(one, rel=LIMIT, abs=LIMIT) for one in cpus]
        assert mine["way"] == "on shadow, rows by gloo, through pinned memory of the hosts"


if __name__ == "__main__":
    work(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
