"""Hosts that reach each other at the rate that was asked for, and nothing left of them afterwards."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading

import pytest
from beds import needs_testbed
from typer.testing import CliRunner

from isthmus import testbed
from isthmus.cli import app
from isthmus.testbed.namespaces import FOLDER, entered

pytestmark = needs_testbed
FIXED = 20_000  # bytes that no program sent: who has which address, hand-shakes


def left(prefix: str) -> list[str]:
    return [path.name for path in FOLDER.iterdir() if path.name.startswith(f"{prefix}-")]


def transfer(bed: testbed.Testbed, size: int) -> int:
    """Sends from host 0 to host 1; gives the bytes that arrived."""
    with bed.hosts[1].entered():
        listener = socket.create_server((bed.hosts[1].address, 0))

    def send() -> None:
        with bed.hosts[0].entered():
            leaving = socket.create_connection(listener.getsockname(), 10)
        with leaving:
            leaving.sendall(bytes(size))

    sender, arrived = threading.Thread(target=send), 0
    sender.start()
    with listener, listener.accept()[0] as arriving:
        while piece := arriving.recv(1 << 16):
            arrived += len(piece)
    sender.join()
    return arrived


def test_counters_agree_with_the_program():
    size = 3_000_000
    with testbed.Testbed(3, "200mbit") as bed:
        before = [host.counters() for host in bed.hosts]
        assert transfer(bed, size) == size
        sender, reader, other = (host.counters() - was for host, was in zip(bed.hosts, before, strict=True))
    assert abs(sender.payload - size) <= FIXED
    assert size < sender.sent < 1.03 * size + FIXED
    assert size < reader.received < 1.03 * size + FIXED
    assert other.sent < FIXED
    assert other.received < FIXED


def test_four_times_the_rate():
    found = []
    for rate in ("40mbit", "160mbit"):
        with testbed.Testbed(2, rate) as bed:
            found.append(testbed.measure(bed, seconds=0.6))
    assert 2.5 < found[1] / found[0] < 6


def test_what_a_host_receives_is_limited_too():
    """Two senders at once share the reader's link: together they get no more than one alone."""
    with testbed.Testbed(3, "50mbit") as bed:
        alone = testbed.measure(bed, 0, 2)
        rates: list[float] = []
        both = [threading.Thread(target=lambda k=k: rates.append(testbed.measure(bed, k, 2))) for k in (0, 1)]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()
    assert len(rates) == 2
    assert 0.5 < sum(rates) / alone < 1.6


def test_hosts_are_seen_by_nobody_else():
    """Two testbeds have the same addresses and never meet; this process is on none of them."""
    with testbed.Testbed(1, "1gbit") as one, testbed.Testbed(1, "1gbit") as other:
        assert one.hosts[0].address == other.hosts[0].address
        assert one.hosts[0].name != other.hosts[0].name
        with one.hosts[0].entered():
            listener = socket.create_server((one.hosts[0].address, 0))
        place = listener.getsockname()
        with listener:
            for where in (other.entered(), other.hosts[0].entered()):
                with where, pytest.raises(OSError, match=r"refused|unreachable|timed out"):
                    socket.create_connection(place, 5)
            with one.entered():
                socket.create_connection(place, 5).close()


def test_cleans_up():
    with testbed.Testbed(2, "1gbit") as bed:
        assert sorted(left(bed.prefix)) == sorted([bed.switch, *(host.name for host in bed.hosts)])
    assert left(bed.prefix) == []


def test_cleans_up_after_an_error():
    with pytest.raises(ZeroDivisionError), testbed.Testbed(2, "1gbit") as bed:
        1 / 0  # noqa: B018
    assert left(bed.prefix) == []


def test_cleans_up_after_half_a_construction(monkeypatch):
    bed = testbed.Testbed(3, "1gbit")
    attach = bed._attach

    def fail_at_the_last(host, place):
        if place == 2:
            raise KeyboardInterrupt
        return attach(host, place)

    monkeypatch.setattr(bed, "_attach", fail_at_the_last)
    with pytest.raises(KeyboardInterrupt), bed:
        pass
    assert bed.prefix
    assert left(bed.prefix) == []


OWNER = """
import time
from isthmus.testbed import Testbed
with Testbed(2, "1gbit") as bed:
    print(bed.prefix, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def owner():
    """A process that holds a testbed, and the prefix of its names."""
    process = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True)
    yield process, process.stdout.readline().strip()
    process.kill()
    process.communicate()


def test_the_next_sweeps_up_after_a_killed_one(owner):
    process, prefix = owner
    names = left(prefix)
    assert len(names) == 3
    assert not set(names) & set(testbed.sweep())  # its owner lives
    assert CliRunner().invoke(app, ["testbed", "--sweep"]).exit_code == 0
    process.send_signal(signal.SIGKILL)
    process.wait()
    with testbed.Testbed(1, "1gbit"):
        assert left(prefix) == []


def test_sigterm_is_heeded(owner):
    process, prefix = owner
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 128 + signal.SIGTERM
    assert left(prefix) == []


def test_the_command_stays_until_it_is_interrupted():
    command = [sys.executable, "-m", "isthmus", "testbed", "--hosts", "2", "--link", "1gbit", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    told = json.loads(process.stdout.readline())
    assert all((FOLDER / host["name"]).exists() for host in told["hosts"])
    assert 0 < told["measured"] < 1.1 * told["rate"] == 1.1e9
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=30)[1]
    assert process.returncode == 0, said
    assert not any((FOLDER / host["name"]).exists() for host in told["hosts"])


# One write a line: `print` may make several, and four processes share this output.
SAY = "import os; os.write(1, '{RANK} {WORLD_SIZE} {MASTER_ADDR}\\n'.format(**os.environ).encode())"


def test_a_command_on_every_host(capfd):
    with testbed.Testbed(2, "1gbit") as bed:
        assert testbed.run_on_hosts(bed, [sys.executable, "-c", SAY], per_host=2) == 0
        assert sorted(capfd.readouterr().out.splitlines()) == [f"{rank} 4 10.77.0.1" for rank in range(4)]
        fails = "import os, sys, time; os.environ['RANK'] == '1' and sys.exit(7); time.sleep(0.1)"
        assert testbed.run_on_hosts(bed, [sys.executable, "-c", fails]) == 7


def test_leaving_a_namespace_after_an_error():
    def here() -> str:
        return os.readlink("/proc/thread-self/ns/net")

    def fail(home: str) -> None:
        assert here() != home
        raise ZeroDivisionError

    home = here()
    with testbed.Testbed(1, "1gbit") as bed, pytest.raises(ZeroDivisionError), entered(bed.switch):
        fail(home)
    assert here() == home
