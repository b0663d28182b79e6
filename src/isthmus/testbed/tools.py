"""The programs that set up networks, `ip` and `tc`, with errors that say what to do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from isthmus.errors import InputError

ELSEWHERE = "/usr/sbin:/sbin"  # where both often are, outside the PATH of users other than root


def program(name: str) -> str:
    """Return the full path of a program."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{ELSEWHERE}")
    if found is None:
        raise InputError(f"the testbed needs the program {name}: install iproute2 (apt-get install iproute2)")
    return found


def check() -> None:
    """Raise an InputError, before anything is made, if this machine or user can have no testbed."""
    if sys.platform != "linux":
        raise InputError("the testbed is made of Linux network namespaces: run it on Linux, or leave --link out")
    if os.geteuid() != 0:
        raise InputError("only root may make network namespaces: run the command with sudo, or leave --link out")
    for name in ("ip", "tc"):
        program(name)


def ip(*arguments: str) -> str:
    return _run("ip", arguments)


def tc(*arguments: str) -> str:
    return _run("tc", arguments)


def _run(name: str, arguments: tuple[str, ...]) -> str:
    done = subprocess.run([program(name), *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        said = " ".join(done.stderr.split()) or f"status {done.returncode}"
        raise InputError(
            f"`{name} {' '.join(arguments)}` failed ({said}): the testbed needs root outside of any unprivileged "
            "container, and a kernel with network namespaces, veth, bridge and tbf"
        )
    return done.stdout
