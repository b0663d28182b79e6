"""Find the address and the network interface by which other machines reach this one."""

from __future__ import annotations

import os
import socket
import struct
import sys

LOOPBACK = "127."
LOOPBACK_ADDRESS = "127.0.0.1"
LOOPBACK_INTERFACE = "lo0" if sys.platform == "darwin" else "lo"


def addresses() -> dict[str, str]:
    """Return the IPv4 address of every network interface that has one (Linux)."""
    if sys.platform != "linux":
        return {}
    import fcntl

    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(asking, 0x8915, struct.pack("256s", name.encode()))  # SIOCGIFADDR
            except OSError:  # an interface without an address
                continue
            found[name] = socket.inet_ntoa(answer[20:24])
    return found


def interface() -> tuple[str, str]:
    """Return the interface that gloo uses, and its address: the one it is told, else that of this machine's name."""
    own, told = addresses(), os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0]
    if told:
        return told, own.get(told, "no address")
    address = resolved(socket.gethostname()) or "127.0.0.1"  # gloo then falls back on loopback
    if address.startswith(LOOPBACK):
        return "loopback", address
    return next((name for name, one in own.items() if one == address), "unknown"), address


def towards(host: str, port: int) -> str:
    """Return the interface through which this machine reaches a host; "" if unknown."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.connect((host, port))  # sends nothing: it only selects the route
            source = asking.getsockname()[0]
    except OSError:
        return ""
    return next((name for name, address in addresses().items() if address == source), "")


def resolved(name: str) -> str | None:
    """Return the address of a host, or None if this machine does not know it."""
    try:
        return str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError:
        return None
