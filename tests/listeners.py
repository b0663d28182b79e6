"""Which sockets a process listens at, as Linux's /proc has it."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

LISTENING = "0A"


def listeners(pid: int) -> list[str]:
    """The addresses at which this process listens; none if it has ended."""
    found = []
    with suppress(FileNotFoundError, ProcessLookupError):
        own = {os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()}
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == LISTENING and f"socket:[{words[9]}]" in own:
                    found.append(_address(words[1].partition(":")[0]))
    return found


def open_to_others(pids: Iterable[int]) -> list[str]:
    """Listening addresses that are not loopback."""
    return [one for pid in pids for one in listeners(pid) if not ipaddress.ip_address(one).is_loopback]


def _address(digits: str) -> str:
    """0100007F is 127.0.0.1: every four bytes are in the machine's own order."""
    words = [bytes.fromhex(digits[k : k + 8])[::-1] for k in range(0, len(digits), 8)]
    return str(ipaddress.ip_address(b"".join(words)))
