"""Lock a run folder so that only one command writes to it at a time, even if several machines share it.

The lock is a file in the folder that names its owner. The owner renews the file's time while it lives, so the lock of
a dead owner can be taken over: at once if it died on this machine, else when the file has become old.
"""

from __future__ import annotations

import _thread
import json
import os
import socket
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from isthmus.console import log
from isthmus.errors import InputError
from isthmus.files.atomic import writing

NAME = "run.lock"
BEAT = 5.0  # seconds between two renewals
OLD = 60.0  # seconds without renewal after which an owner on another machine counts as dead
PAUSE = 0.5  # seconds between two checks while waiting


@dataclass(frozen=True)
class Owner:
    """The identity of a process; process ids are meaningful only inside one `system`."""

    host: str
    pid: int
    token: str
    since: float
    system: str
    began: str
    """The start time of the process by its own system, since process ids are reused."""

    @staticmethod
    def here() -> Owner:
        return Owner(socket.gethostname(), os.getpid(), uuid.uuid4().hex, time.time(), _system(), _began(os.getpid()))

    @property
    def on_this_system(self) -> bool:
        return self.system == _system()

    @property
    def lives(self) -> bool:
        """Whether the process still exists; to be asked only on its own system."""
        return bool(self.began) and _began(self.pid) == self.began


class FolderLock:
    """A lock on a folder, held during a ``with`` block; raises `InputError` if another process holds it.

    ``patient``: wait for an owner that may be dead, for commands that a launcher restarted after a failure.
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
        """Create the lock unless it exists; making a link is atomic, also on network file systems."""
        ours = self.folder / f".{NAME}-{self.owner.token}"
        try:
            ours.write_text(json.dumps(asdict(self.owner)))
            try:
                os.link(ours, self.path)
            except FileExistsError:
                pass  # of another process; or ours, if the server's first answer was lost
            except OSError:  # some file systems have no links
                with suppress(FileExistsError), open(self.path, "x") as file:
                    file.write(ours.read_text())
            return self._is_ours()
        finally:
            ours.unlink(missing_ok=True)

    def _wait_or_refuse(self, deadline: float) -> None:
        """Remove the lock if its owner is dead; else wait a little, or raise an error that names the owner."""
        try:
            other, age = self._read()
        except FileNotFoundError:  # released just now
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
        """Return the owner (None if the file is not readable as one) and the seconds since the last renewal."""
        with self.path.open() as file:  # opening makes a file server check for changes
            try:
                owner = Owner(**json.loads(file.read(10_000)))
            except (ValueError, TypeError):
                owner = None
            return owner, self._now() - os.fstat(file.fileno()).st_mtime

    def _now(self) -> float:
        """Return the time by the clock of the file system, since that of this machine may differ."""
        probe = self.folder / f".{NAME}-{self.owner.token}-now"
        try:
            probe.touch()
            return probe.stat().st_mtime
        finally:
            probe.unlink(missing_ok=True)

    def _remove(self, dead: Owner | None) -> None:
        """Remove a dead owner's lock; only one process can rename it, and a live owner's lock is put back."""
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
            except OSError:  # a file server that does not answer now may do so next time
                continue

    def _lost(self) -> None:
        """Interrupt this process, as by Ctrl-C, since its lock was taken while it slept: two must not write at once."""
        said = f"{self.path} was taken away, since this process gave no sign of life for {OLD:g} s: it stops here"
        log.error("%s", said)
        _thread.interrupt_main()


def _words(owner: Owner | None, age: float) -> str:
    if owner is None:
        return f" ({NAME} changed {max(age, 0):.0f} s ago)"
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(owner.since))
    return f" by process {owner.pid} on {owner.host} since {since} (last sign of life {max(age, 0):.0f} s ago)"


def _system() -> str:
    """Return the boot and the container, inside which a process id is unique."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:  # not Linux
        return socket.gethostname()


def _began(pid: int) -> str:
    """Return when a process of this system began; "" if it does not exist."""
    try:
        if not Path("/proc/self/stat").exists():  # not Linux: only check that it exists
            os.kill(pid, 0)
            return "some time ago"
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if state in "ZX" else fields[18]
    except OSError:
        return ""
