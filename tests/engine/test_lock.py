"""The lock of a run folder: one owner at a time; that of a dead one is taken over, on this machine and on others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from dataclasses import asdict, replace

import pytest
from processes import until

from isthmus.engine import lock
from isthmus.engine.lock import NAME, FolderLock, Owner
from isthmus.errors import InputError


def left_behind(folder, owner: Owner, age: float = 0.0) -> None:
    """A lock that `owner` renewed `age` seconds ago."""
    path = folder / NAME
    path.write_text(json.dumps(asdict(owner)))
    os.utime(path, (path.stat().st_atime - age, path.stat().st_mtime - age))


def elsewhere() -> Owner:
    return replace(Owner.here(), host="far-away", system="another boot")


def test_the_second_is_told_who_has_it(tmp_path):
    with FolderLock(tmp_path) as held:
        said = rf"in use by process {os.getpid()} on \S+ since 20\d\d-.* \(last sign of life \d s ago\): wait"
        with pytest.raises(InputError, match=said) as refusal, FolderLock(tmp_path):
            pass
        assert "\n" not in str(refusal.value)
        assert held.path.exists()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("links", [True, False])
def test_many_want_it_at_once(tmp_path, monkeypatch, links):
    """A dead owner's lock is there; never do two hold the folder, and all get it in the end."""
    if not links:
        monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(PermissionError()))
    left_behind(tmp_path, elsewhere(), age=1000)
    inside, most, had = [], [], []

    def want():
        while True:
            try:
                with FolderLock(tmp_path):
                    inside.append(1)
                    most.append(len(inside))
                    inside.pop()
                    had.append(1)
                return
            except InputError:
                continue

    threads = [threading.Thread(target=want) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(had) == 6
    assert max(most) == 1
    assert not list(tmp_path.iterdir())


def test_a_dead_process_of_this_machine(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    owner = replace(Owner.here(), pid=ended.pid)
    ended.wait()
    left_behind(tmp_path, owner)
    with FolderLock(tmp_path) as held:
        assert held._is_ours()


def test_a_process_id_that_was_given_out_again(tmp_path):
    left_behind(tmp_path, replace(Owner.here(), began="12"))
    with FolderLock(tmp_path) as held:
        assert held._is_ours()


def test_a_process_that_lives_but_sleeps_keeps_it(tmp_path):
    left_behind(tmp_path, Owner.here(), age=1000)
    with pytest.raises(InputError, match="last sign of life 1000 s ago"), FolderLock(tmp_path):
        pass


def test_an_owner_on_another_machine(tmp_path):
    """Nobody can look at its process: its signs of life decide."""
    left_behind(tmp_path, elsewhere(), age=lock.OLD - 20)
    with pytest.raises(InputError, match="on far-away since"), FolderLock(tmp_path):
        pass
    left_behind(tmp_path, elsewhere(), age=lock.OLD + 1)
    with FolderLock(tmp_path) as held:
        assert held._is_ours()


def test_what_a_launcher_starts_again_waits_for_the_dead(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "PAUSE", 0.01)
    left_behind(tmp_path, elsewhere(), age=lock.OLD - 0.3)
    with FolderLock(tmp_path, patient=True) as held:
        assert held._is_ours()


def test_a_file_that_says_nothing(tmp_path):
    (tmp_path / NAME).write_text("{")
    with pytest.raises(InputError, match=r"in use \(run\.lock changed 0 s ago\)"), FolderLock(tmp_path):
        pass
    os.utime(tmp_path / NAME, (1, 1))
    with FolderLock(tmp_path) as held:
        assert held._is_ours()


def test_signs_of_life(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "BEAT", 0.01)
    with FolderLock(tmp_path) as held:
        os.utime(held.path, (1, 1))
        until(lambda: held.path.stat().st_mtime > 1)


def test_who_lost_it_is_stopped(tmp_path, monkeypatch, capfd):
    """It slept for long; another machine took over, and its lock is left alone."""
    monkeypatch.setattr(lock, "BEAT", 0.01)
    stopped = threading.Event()
    monkeypatch.setattr("_thread.interrupt_main", stopped.set)
    with FolderLock(tmp_path):
        left_behind(tmp_path, elsewhere())
        assert stopped.wait(60)
    assert "far-away" in (tmp_path / NAME).read_text()
    assert "was taken away" in capfd.readouterr().err
