"""Examine workers that were started together: who they are, whether they fit together, how fast their links are."""

from __future__ import annotations

import json
import platform
import socket
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import torch

import isthmus
from isthmus.comm import Transport
from isthmus.diagnose.doctor import Finding, native_core
from isthmus.diagnose.links import WHERE, Link, measure_links
from isthmus.errors import WorkerError
from isthmus.launch.job import join
from isthmus.launch.network import LOOPBACK, interface, resolved
from isthmus.launch.place import Place
from isthmus.testbed import written

SLOW = 0.25  # share of the median rate; a slower link deserves a look


@dataclass(frozen=True)
class WorkerFacts:
    """The facts that one worker reports about itself."""

    host: str
    interface: str
    address: str
    isthmus: str
    torch: str
    python: str
    core: str

    @staticmethod
    def here() -> WorkerFacts:
        versions = isthmus.__version__, str(torch.__version__), platform.python_version()
        return WorkerFacts(socket.gethostname(), *interface(), *versions, native_core().value)


@dataclass(frozen=True)
class Meeting:
    """All workers in rank order, the host names that each cannot resolve, and every link."""

    workers: list[WorkerFacts]
    unknown_hosts: list[list[str]]
    links: list[Link]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def findings(self) -> list[Finding]:
        about = [
            Finding(f"worker {rank}", f"{one.host}, {one.interface} {one.address}")
            for rank, one in enumerate(self.workers)
        ]
        return [*about, self._versions(), self._cores(), self._names(), self._speed()]

    def _versions(self) -> Finding:
        unlike = [name for name in ("isthmus", "torch", "python") if len(set(self._each(name))) > 1]
        if not unlike:
            return Finding("versions", "equal on all workers")
        values = "; ".join(f"{name} {', '.join(self._each(name))}" for name in unlike)
        return Finding("versions", values, f"install the same {' and '.join(unlike)} for every worker", True)

    def _cores(self) -> Finding:
        levels = self._each("core")
        slow = any(level in ("missing", "off") for level in levels)
        advice = "the slowest sets the pace" + (": build the core there, too (docs/install.md)" if slow else "")
        value = ", ".join(levels)
        return Finding("cores", value, advice, slow) if len(set(levels)) > 1 else Finding("cores", "equal")

    def _names(self) -> Finding:
        gaps = [
            f"worker {rank} does not know {', '.join(names)}" for rank, names in enumerate(self.unknown_hosts) if names
        ]
        if not gaps:
            return Finding("names", "every worker knows every host")
        return Finding("names", "; ".join(gaps), "no harm: workers tell each other their addresses")

    def _speed(self) -> Finding:
        """Find links between machines that are far slower than most; inside a machine a slow link is only busy."""
        slowest, usual = min(self.links, key=_rate), median(map(_rate, self.links))
        value = f"median {written(usual)}, slowest {written(_rate(slowest))}"
        far = [link for link in self.links if self.workers[link.source].address != self.workers[link.target].address]
        slow = [f"{link.source} to {link.target}" for link in far if _rate(link) < SLOW * median(map(_rate, far))]
        if not slow:
            return Finding("speed", value)
        advice = f"far slower than most: from worker {', '.join(slow)}; look at the network and the interfaces there"
        return Finding("speed", value, advice, True)

    def _each(self, name: str) -> list[str]:
        return [getattr(worker, name) for worker in self.workers]


def _rate(link: Link) -> float:
    return link.bits_per_second


def meet(place: Place, timeout: float) -> Meeting:
    """Join the other workers as training would, and examine them; every worker calls it."""
    try:
        transport = join(place, timeout)
    except WorkerError as error:
        own = gloo_interface(place)
        raise WorkerError(f"{error}; {own.advice}" if own.wrong else str(error)) from error
    try:
        return look(transport)
    finally:
        transport.close()


def look(transport: Transport) -> Meeting:
    workers = [WorkerFacts(**told) for told in _told(asdict(WorkerFacts.here()), transport)]
    unknown = _told(sorted({one.host for one in workers if resolved(one.host) is None}), transport)
    return Meeting(workers, unknown, measure_links(transport))


def gloo_interface(place: Place) -> Finding:
    """Check the interface that gloo would use: loopback reaches no other machine."""
    name, address = interface()
    wrong = place.local_size < place.size and (address.startswith(LOOPBACK) or address == "no address")
    advice = "set GLOO_SOCKET_IFNAME to an interface that the other machines reach (`ip address` lists them)"
    where = f"gloo of worker {place.rank} would use {name} ({address}), which no other machine reaches: "
    return Finding("interface", f"{name} {address}", where + advice if wrong else "", wrong)


def _told(mine: Any, transport: Transport) -> list[Any]:
    """Return what every worker reports, sent as json, in rank order."""
    return [json.loads(words) for words in transport.gather_words(json.dumps(mine), WHERE)]
