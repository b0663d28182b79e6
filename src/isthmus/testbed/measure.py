"""Measure the real speed of a testbed's link with one plain TCP stream."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress

from isthmus.testbed.hosts import Host
from isthmus.testbed.testbed import Testbed

CHUNK = 1 << 20
WARM_UP = 0.2  # seconds until a stream has found its speed
PATIENCE = 10.0  # seconds without a byte after which something is wrong


def measure(testbed: Testbed, source: int = 0, target: int = 1, seconds: float = 0.5) -> float:
    """Return the bits per second of payload that reach host `target` from host `source`, after a short warm-up."""
    with _listening(testbed.hosts[target]) as listener:
        sender = threading.Thread(target=_send, args=(testbed.hosts[source], listener.getsockname()), daemon=True)
        sender.start()
        arriving, _ = listener.accept()
        with arriving:
            arriving.settimeout(PATIENCE)
            _receive_until(arriving, time.perf_counter() + WARM_UP)
            begun = time.perf_counter()
            received = _receive_until(arriving, begun + seconds)
            rate = 8 * received / (time.perf_counter() - begun)
        sender.join()
    return rate


def _listening(host: Host) -> socket.socket:
    with host.entered():
        listener = socket.create_server((host.address, 0))
    listener.settimeout(PATIENCE)
    return listener


def _send(host: Host, address: tuple[str, int]) -> None:
    with host.entered():
        leaving, content = socket.create_connection(address, PATIENCE), bytes(CHUNK)
    with leaving, suppress(ConnectionError):  # the receiver has closed the connection
        while True:
            leaving.sendall(content)


def _receive_until(stream: socket.socket, deadline: float) -> int:
    received, room = 0, bytearray(CHUNK)
    while time.perf_counter() < deadline:
        received += stream.recv_into(room)
    return received
