"""Network namespaces named after the process that made them, so that those of ended processes can be found."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from isthmus.errors import InputError
from isthmus.testbed.tools import ip

FOLDER = Path("/run/netns")  # where `ip netns` keeps them
_CLONE_NEWNET = 0x40000000


def free_prefix() -> str:
    """Return a name of this process that no namespace begins with yet: isthmus-PID-NUMBER."""
    taken, number = _names(), 0
    while any(name.startswith(f"isthmus-{os.getpid()}-{number}-") for name in taken):
        number += 1
    return f"isthmus-{os.getpid()}-{number}"


def sweep() -> list[str]:
    """Remove the namespaces of processes that are gone, and with them their links; return the names."""
    left = [name for name in _names() if (match := re.match(r"isthmus-(\d+)-", name)) and not _alive(int(match[1]))]
    for name in left:
        with suppress(InputError):  # another process may sweep at the same time
            ip("netns", "del", name)
    return left


def remove(prefix: str) -> None:
    """Remove the namespaces of one testbed."""
    for name in _names():
        if name.startswith(f"{prefix}-"):
            ip("netns", "del", name)


@contextmanager
def entered(name: str) -> Iterator[None]:
    """Make the sockets that this thread opens inside the block belong to the namespace; they stay in it."""
    with open("/proc/thread-self/ns/net") as home, (FOLDER / name).open() as away:
        _set(away.fileno())
        try:
            yield
        finally:
            _set(home.fileno())


def _set(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "cannot enter a network namespace")


def _names() -> list[str]:
    return sorted(path.name for path in FOLDER.iterdir()) if FOLDER.is_dir() else []


def _alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
