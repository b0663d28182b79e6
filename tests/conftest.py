"""Fixtures that every room uses."""

from __future__ import annotations

import gc
import os
import signal
import threading
from contextlib import suppress
from pathlib import Path

os.environ.setdefault("TRITON_INTERPRET", "1")  # before anything imports triton: its kernels then run on the CPU

import pytest
import torch
import torch.distributed as dist

# Graphs are small, and workers are often threads of one process: pools of threads would wait for each other.
torch.set_num_threads(1)

# A shell without job control starts what runs in its background deaf to Ctrl-C, and its children too: tests send it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


os.fsync = lambda file: None  # a test that is cut short by a power failure need not find its files again


def pytest_collection_finish() -> None:
    """Leave what all tests share, torch above all, out of every collection of garbage: a twentieth of the time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def datasets() -> Path:
    """The folder of real graphs beside the repository; tests that need it are skipped where it is absent."""
    folder = Path(__file__).parents[2] / "shared" / "datasets"
    if not folder.is_dir():
        pytest.skip(f"no real graphs: {folder} is absent")
    return folder


@pytest.fixture
def workers_are_threads(monkeypatch):
    """Commands start their workers as threads of this process: for tests in which processes are not the point."""
    from runs import as_threads

    monkeypatch.setattr("isthmus.launch.local.start", as_threads)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)  # here it is the tests' own


def _children() -> set[str]:
    children: set[str] = set()
    for file in Path("/proc/self/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # that thread has ended since it was listed
            children.update(file.read_text().split())
    return children


@pytest.fixture(autouse=True)
def nothing_leaks():
    """Fails a test that leaves a thread, a child process or a process group behind."""
    threads, children = set(threading.enumerate()), _children()
    yield
    left = [thread.name for thread in threading.enumerate() if thread not in threads and not thread.daemon]
    assert not left, f"threads left behind: {left}"
    behind = _children() - children
    for child in behind:  # or it would slow down the tests that follow
        with suppress(ProcessLookupError):
            os.kill(int(child), signal.SIGKILL)
    assert not behind, "a child process was left behind"
    assert not dist.is_initialized(), "a process group was left behind"
