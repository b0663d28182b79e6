"""The lock of a run folder: one command writes to it at a time, also where several machines share it.

The lock is a file in the folder that names its owner. The owner renews the file's time while it lives, so the lock of
one that died is taken over: at once if it died on this machine, else when its time has become old.
"""

from __future__ import annotations

import _thread
import json
import os
import socket
import sys
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from isthmus.errors import InputError
from isthmus.files.atomic import writing

NAME = "run.lock"
BEAT = 5.0  # seconds between two signs of life
OLD = 60.0  # seconds without one after which an owner on another machine counts as dead
PAUSE = 0.5  # seconds between two looks of one who waits


@dataclass(frozen=True)
class Owner:
    """A process, as others can recognise it: process ids mean something only inside one `system`."""

    host: str
    pid: int
    token: str
    since: float
    system: str
    began: str
    """When the process began, by its own system: process ids are given out again."""

    @staticmethod
    def here() -> Owner:
        return Owner(socket.gethostname(), os.getpid(), uuid.uuid4().hex, time.time(), _system(), _began(os.getpid()))

    @property
    def on_this_system(self) -> bool:
        return self.system == _system()

    @property
    def lives(self) -> bool:
        """Whether the process is still there; to be asked on its own system only."""
        return bool(self.began) and _began(self.pid) == self.began


class FolderLock:
    """Holds a folder while a ``with`` block lasts; raises `InputError` if somebody else holds it.

    ``patient``: wait for an owner that may be dead, as those must that a launcher has started again after a failure.
    """

    def __init__(self, folder: Path, patient: bool = False):
        self.folder, self.path, self.patient = folder, folder / NAME, patient
        self.owner = Owner.here()
        self._over = threading.Event()

    def __enter__(self) -> FolderLock:
        with writing(self.path):
            deadline = time.monotonic() + (OLD + 2 * BEAT if self.patient else 0.0)
            while not self._take():
                self._wait_or_refuse(deadline)
        self._beating = threading.Thread(target=self._beat, name="run-lock", daemon=True)
        self._beating.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._beating.join()
        with suppress(OSError):
            if self._is_ours():
                self.path.unlink()

    def _take(self) -> bool:
        """Create the lock, unless it is there. A link is made or refused as one act, on network file systems too."""
        ours = self.folder / f".{NAME}-{self.owner.token}"
        try:
            ours.write_text(json.dumps(asdict(self.owner)))
            try:
                os.link(ours, self.path)
            except FileExistsError:
                pass  # somebody's; or ours, if the server's first answer was lost
            except OSError:  # some file systems have no links
                with suppress(FileExistsError), open(self.path, "x") as file:
                    file.write(ours.read_text())
            return self._is_ours()
        finally:
            ours.unlink(missing_ok=True)

    def _wait_or_refuse(self, deadline: float) -> None:
        """Remove the lock if its owner is dead; else wait a little, or say who has it."""
        try:
            other, age = self._read()
        except FileNotFoundError:  # given back just now
            return
        if other is not None and other.on_this_system:
            dead = not other.lives
        else:
            dead = age > OLD
        if dead:
            self._remove(other)
        elif time.monotonic() < deadline:
            time.sleep(PAUSE)
        else:
            raise InputError(f"{self.folder} is in use{_words(other, age)}: wait for it, end it, or give another --out")

    def _read(self) -> tuple[Owner | None, float]:
        """The owner, None if the file cannot be understood, and the seconds since its last sign of life."""
        with self.path.open() as file:  # opening asks a file server for what is there now
            try:
                owner = Owner(**json.loads(file.read(10_000)))
            except (ValueError, TypeError):
                owner = None
            return owner, self._now() - os.fstat(file.fileno()).st_mtime

    def _now(self) -> float:
        """The time by the clock of whoever keeps the files: that of this machine may differ."""
        probe = self.folder / f".{NAME}-{self.owner.token}-now"
        try:
            probe.touch()
            return probe.stat().st_mtime
        finally:
            probe.unlink(missing_ok=True)

    def _remove(self, dead: Owner | None) -> None:
        """Take a dead owner's lock away. Of several who try, one can rename it; what was not meant is put back."""
        aside = self.folder / f".{NAME}-{self.owner.token}-old"
        with suppress(FileNotFoundError):
            self.path.rename(aside)
            if dead is not None and dead.token not in aside.read_text() and not self.path.exists():
                aside.rename(self.path)
            aside.unlink(missing_ok=True)

    def _is_ours(self) -> bool:
        try:
            return self.owner.token in self.path.read_text()
        except FileNotFoundError:
            return False

    def _beat(self) -> None:
        while not self._over.wait(BEAT):
            try:
                if not self._is_ours():
                    return self._lost()
                os.utime(self.path)
            except OSError:  # a file server that does not answer now may do so by the next time
                continue

    def _lost(self) -> None:
        """Somebody took the lock while this process slept: end as by Ctrl-C, rather than write beside him."""
        said = f"{self.path} was taken away, since this process gave no sign of life for {OLD:g} s: it stops here"
        print(said, file=sys.stderr, flush=True)
        _thread.interrupt_main()


def _words(owner: Owner | None, age: float) -> str:
    if owner is None:
        return f" ({NAME} changed {max(age, 0):.0f} s ago)"
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(owner.since))
    return f" by process {owner.pid} on {owner.host} since {since} (last sign of life {max(age, 0):.0f} s ago)"


def _system() -> str:
    """The boot and the container in which process ids are one process each."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:  # not Linux
        return socket.gethostname()


def _began(pid: int) -> str:
    """When a process of this system began; "" if it is not there."""
    try:
        if not Path("/proc/self/stat").exists():  # not Linux: only whether it is there
            os.kill(pid, 0)
            return "some time ago"
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if state in "ZX" else fields[18]
    except OSError:
        return ""
