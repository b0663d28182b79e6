"""Write files and folders whole or not at all: under a hidden name, made durable, then renamed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from isthmus.errors import InputError


def publish(building: Path, target: Path) -> None:
    """Make a finished file or folder durable, then give it its name in one step, replacing an old one."""
    for path in [building, *(building.rglob("*") if building.is_dir() else ())]:
        _sync(path)
    if target.is_dir() and any(target.iterdir()):
        old = Path(tempfile.mkdtemp(prefix=_prefix(target), dir=target.parent))
        target.rename(old)
        building.rename(target)
        shutil.rmtree(old, ignore_errors=True)
    else:
        building.replace(target)
    _sync(target.parent)


@contextmanager
def folder_at_once(out: Path, *, replace: bool, ours: Callable[[Path], bool], what: str) -> Iterator[Path]:
    """Give a folder to write into, which is named ``out`` if the block succeeds and removed if it fails.

    A run that is killed leaves only a hidden sibling ``.NAME.unfinished-…``, which the next run to ``out`` removes.
    """
    check_target(out, replace=replace, ours=ours, what=what)
    out.parent.mkdir(parents=True, exist_ok=True)
    _sweep(out)
    folder = Path(tempfile.mkdtemp(prefix=_prefix(out), dir=out.parent))
    folder.chmod(0o755)
    lock = _lock(folder)
    try:
        yield folder
        check_target(out, replace=replace, ours=ours, what=what)  # again: it may have been created meanwhile
        publish(folder, out)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        os.close(lock)


def check_writable(folder: Path) -> None:
    """Refuse a folder that cannot be written to or made."""
    above = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise InputError(f"cannot write {folder}: {above} is not a writable folder; give another --out")


def check_target(out: Path, *, replace: bool, ours: Callable[[Path], bool], what: str) -> None:
    """Refuse a target that must not be overwritten or cannot be written."""
    check_writable(out.parent)
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not out.is_dir() or not ours(out):
        raise InputError(f"{out} exists and is not {what}: choose another --out")
    if not replace:
        raise InputError(f"{out} already holds {what}: choose another --out, or add --overwrite")


@contextmanager
def files_at_once(targets: Sequence[Path], *, replace: bool) -> Iterator[list[Path]]:
    """Give paths to write to, which get the targets' names if the block succeeds and are removed if it fails.

    All targets are in one folder. Files left by a killed process are hidden, and the next process that writes the same
    targets removes them.
    """
    check_free(targets, replace=replace)
    parent = targets[0].parent
    parent.mkdir(parents=True, exist_ok=True)
    _sweep(targets[0])
    folder = Path(tempfile.mkdtemp(prefix=_prefix(targets[0]), dir=parent))
    lock = _lock(folder)
    try:
        paths = [folder / target.name for target in targets]
        yield paths
        check_free(targets, replace=replace)  # again: they may have been created meanwhile
        for path, target in zip(paths, targets, strict=True):
            publish(path, target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def check_free(targets: Sequence[Path], *, replace: bool) -> None:
    """Refuse files that must not be overwritten."""
    for target in targets:
        if target.is_dir():
            raise InputError(f"{target} is a folder: give a file's name as --out")
        if target.exists() and not replace:
            raise InputError(f"{target} exists already: choose another --out, or add --overwrite")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say what to do if a file of a run cannot be written, for instance because the disk is full or read-only."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(
            f"cannot write {path} ({reason}): free some space or correct the permissions, then --resume goes on from "
            "the last checkpoint; or give another --out"
        ) from error


def write_whole(path: Path, text: str) -> None:
    """Replace a file of a run in one step; if that fails, the old one stays."""
    building = path.with_name(f".{path.name}.{os.getpid()}")
    with writing(path):
        try:
            building.write_text(text)
            publish(building, path)
        except OSError:
            building.unlink(missing_ok=True)
            raise


def _sync(path: Path) -> None:
    """Make a file's content, or a folder's entries, durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _prefix(target: Path) -> str:
    """Return the beginning of the hidden names used while the target is being written."""
    return f".{target.name}.unfinished-"


def _lock(folder: Path) -> int:
    """Lock the folder for the life of this process, so that no other process removes it."""
    handle = os.open(folder, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return handle


def _sweep(target: Path) -> None:
    """Remove what killed processes left for this target: hidden folders that no living process has locked."""
    for path in target.parent.iterdir():
        if not path.name.startswith(_prefix(target)):
            continue
        try:
            handle = _lock(path)
        except OSError:
            continue
        shutil.rmtree(path, ignore_errors=True)
        os.close(handle)
