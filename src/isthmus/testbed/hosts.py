"""One host of a testbed: runs programs on it, and counts what has crossed its link."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from isthmus.testbed.namespaces import entered
from isthmus.testbed.tools import ip, program

INTERFACE = "eth0"
HEADERS = 66  # bytes before the payload of a packet: Ethernet 14, IPv4 20, TCP with time stamps 32


@dataclass(frozen=True)
class Counters:
    """The bytes and packets that an interface has sent and received since it was made.

    A large piece that TCP hands down in one go counts as one packet, whatever its size, if the link did not have to
    split it. ``payload`` is what programs sent: bytes without the headers of each counted packet.
    """

    sent: int = 0
    received: int = 0
    packets: int = 0  # sent

    @property
    def payload(self) -> int:
        return self.sent - HEADERS * self.packets

    def __add__(self, other: Counters) -> Counters:
        return Counters(self.sent + other.sent, self.received + other.received, self.packets + other.packets)

    def __sub__(self, other: Counters) -> Counters:
        return Counters(self.sent - other.sent, self.received - other.received, self.packets - other.packets)


@dataclass(frozen=True)
class Host:
    """A network namespace with one interface, its link to the switch."""

    name: str  # of the namespace, as `ip netns` knows it
    address: str

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs `argv` on this host."""
        return [program("ip"), "netns", "exec", self.name, *argv]

    @property
    def environ(self) -> dict[str, str]:
        """The environment of a process on this host: the interface through which it reaches the others."""
        # Hosts have addresses but no names, and torch would warn about that at each connection.
        return {"GLOO_SOCKET_IFNAME": INTERFACE, "TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR")}

    def entered(self) -> AbstractContextManager[None]:
        """Make the sockets that this thread opens inside the block belong to this host."""
        return entered(self.name)

    def counters(self) -> Counters:
        (link,) = json.loads(ip("-n", self.name, "-s", "-j", "link", "show", "dev", INTERFACE))
        sent, received = link["stats64"]["tx"], link["stats64"]["rx"]
        return Counters(sent["bytes"], received["bytes"], sent["packets"])
