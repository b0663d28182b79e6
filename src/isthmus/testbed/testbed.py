"""The testbed: n hosts around one switch, every link limited in both directions.

    host 0 ── eth0 ─tbf─→ ←─tbf─ host0 ┐
    host 1 ── eth0 ─tbf─→ ←─tbf─ host1 ┤ bridge       every name is a network namespace of its own,
    host 2 ── eth0 ─tbf─→ ←─tbf─ host2 ┘ (switch)     the bridge too: nothing touches the machine's network

A token bucket (tbf) at the host's end limits what the host sends, one at the switch's end what it receives.
"""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import AbstractContextManager

from isthmus.comm.hosts import in_blocks
from isthmus.errors import InputError
from isthmus.testbed import namespaces
from isthmus.testbed.hosts import INTERFACE, Counters, Host
from isthmus.testbed.rate import bits_per_second
from isthmus.testbed.tools import check, ip, tc

BRIDGE = "bridge"
NETWORK = "10.77"  # of the hosts; not visible outside the testbed
MOST_HOSTS = 200
MTU = 9000  # jumbo frames: a plain TCP stream gets 99.3 % of the rate
# The amount that an idle link lets through at once: more makes short messages too fast, less makes long ones too slow
# on a machine whose cores are busy (with 1, 3 and 10 ms a plain stream at 1gbit got 96, 98 and 99 %, with five tasks
# per core).
BURST_SECONDS, LEAST_BURST = 2e-3, 20_000  # bytes: two frames and some room
# The length of the queue at a link, beyond which packets are dropped. A long queue would delay short messages as much
# as the rows before them, which neither a host nor a switch does; a short one would lose too much when all send to one.
QUEUE_SECONDS, LEAST_QUEUE = 20e-3, 200_000  # bytes


def queue_bytes(rate: float) -> int:
    """Return the bytes that may wait at a link of so many bits per second."""
    return max(LEAST_QUEUE, round(rate / 8 * QUEUE_SECONDS))


class Testbed:
    """A narrow network: ``with Testbed(hosts=4, rate="300mbit") as testbed: …``; nothing of it is left after the block.

    The next testbed removes what a killed process has left. Needs root.
    """

    def __init__(self, hosts: int, rate: str | float):
        if not 1 <= hosts <= MOST_HOSTS:
            raise InputError(f"a testbed has 1 to {MOST_HOSTS} hosts, not {hosts}")
        self.rate = bits_per_second(rate) if isinstance(rate, str) else float(rate)
        self.count = hosts
        self.hosts: list[Host] = []
        self.prefix = ""

    def __enter__(self) -> Testbed:
        check()
        namespaces.sweep()
        self.prefix = namespaces.free_prefix()
        self._heed_sigterm()
        try:
            self._build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        namespaces.remove(self.prefix)
        if self._earlier is not None:
            signal.signal(signal.SIGTERM, self._earlier)

    @property
    def switch(self) -> str:
        return f"{self.prefix}-switch"

    @property
    def address(self) -> str:
        """The address of the switch itself, where processes outside the hosts can be reached."""
        return f"{NETWORK}.255.1"

    def entered(self) -> AbstractContextManager[None]:
        """Make the sockets that this thread opens inside the block belong to the switch."""
        return namespaces.entered(self.switch)

    def host(self, worker: int, workers: int | None = None) -> Host:
        """Return the host of one of so many workers (None: one on each host); neighbours in rank share a host."""
        return self.hosts[in_blocks(workers or self.count, self.count)[worker]]

    def counters(self) -> Counters:
        """Return the bytes that all hosts together have sent and received."""
        return sum((host.counters() for host in self.hosts), Counters())

    def _build(self) -> None:
        self._add(self.switch)
        ip("-n", self.switch, "link", "add", BRIDGE, "mtu", str(MTU), "type", "bridge")
        ip("-n", self.switch, "address", "add", f"{self.address}/16", "dev", BRIDGE)
        ip("-n", self.switch, "link", "set", BRIDGE, "up")
        self.hosts = [self._attach(Host(f"{self.prefix}-{k}", f"{NETWORK}.0.{k + 1}"), k) for k in range(self.count)]

    def _attach(self, host: Host, place: int) -> Host:
        port = f"host{place}"
        self._add(host.name)
        own = ("name", INTERFACE, "mtu", str(MTU), "netns", host.name)
        ip("-n", self.switch, "link", "add", port, "mtu", str(MTU), "type", "veth", "peer", *own)
        ip("-n", host.name, "address", "add", f"{host.address}/16", "dev", INTERFACE)
        burst = max(LEAST_BURST, round(self.rate / 8 * BURST_SECONDS))
        limit = ("rate", f"{self.rate:.0f}bit", "burst", f"{burst}b", "limit", f"{burst + queue_bytes(self.rate)}b")
        for namespace, interface in ((self.switch, port), (host.name, INTERFACE)):
            tc("-n", namespace, "qdisc", "add", "dev", interface, "root", "tbf", *limit)
        ip("-n", self.switch, "link", "set", port, "master", BRIDGE, "up")
        ip("-n", host.name, "link", "set", INTERFACE, "up")
        return host

    @staticmethod
    def _add(name: str) -> None:
        ip("netns", "add", name)
        ip("-n", name, "link", "set", "lo", "up")

    def _heed_sigterm(self) -> None:
        """Make SIGTERM raise SystemExit, so that context managers can clean up."""
        self._earlier = None
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            self._earlier = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
