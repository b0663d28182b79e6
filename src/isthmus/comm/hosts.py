"""Hosts: which workers can reach each other without a link between machines."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence

from isthmus.errors import InputError

_NETWORK = "/proc/self/ns/net"  # the network namespace on Linux: containers of one machine are hosts of their own


def host_name() -> str:
    """Return a name that workers of one host share: the machine's, and its network's where there are several."""
    try:
        return f"{platform.node()} {os.readlink(_NETWORK)}"
    except OSError:
        return platform.node()


def numbered(names: Sequence[str]) -> list[int]:
    """Return the host of every worker, counted from 0 in the order of workers, from the names of their hosts."""
    numbers: dict[str, int] = {}
    return [numbers.setdefault(name, len(numbers)) for name in names]


def in_blocks(workers: int, hosts: int) -> list[int]:
    """Return the host of every worker if so many hosts have equal blocks of them."""
    if not 1 <= hosts <= workers:
        raise InputError(f"{workers} workers cannot be on {hosts} hosts: give --hosts from 1 to {workers}")
    return [worker * hosts // workers for worker in range(workers)]
