"""Files and folders that are either complete or not there: written under a hidden name, made durable, then renamed."""

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
    """Give a finished file or folder its name in one step, its content made durable before; an old one is replaced."""
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
    """A folder to write into; it takes the name ``out`` when the block ends well, and is removed when it does not.

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
        check_target(out, replace=replace, ours=ours, what=what)  # again: it may have come into being meanwhile
        publish(folder, out)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        os.close(lock)


def check_writable(folder: Path) -> None:
    """A folder that is there and can be written to, or can be made."""
    above = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise InputError(f"cannot write {folder}: {above} is no folder that can be written to; give another --out")


def check_target(out: Path, *, replace: bool, ours: Callable[[Path], bool], what: str) -> None:
    """Refuse a target that must not be written over, or cannot be written."""
    check_writable(out.parent)
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not out.is_dir() or not ours(out):
        raise InputError(f"{out} exists and is not {what}: choose another --out")
    if not replace:
        raise InputError(f"{out} already holds {what}: choose another --out, or add --overwrite")


@contextmanager
def files_at_once(targets: Sequence[Path], *, replace: bool) -> Iterator[list[Path]]:
    """Paths to write to; they take the targets' names when the block ends well, and are removed when it does not.

    All targets are in one folder. What a killed process leaves is hidden, and the next one to the same targets
    removes it.
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
        check_free(targets, replace=replace)  # again: they may have come into being meanwhile
        for path, target in zip(paths, targets, strict=True):
            publish(path, target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def check_free(targets: Sequence[Path], *, replace: bool) -> None:
    """Refuse files that must not be written over."""
    for target in targets:
        if target.is_dir():
            raise InputError(f"{target} is a folder: give a file's name as --out")
        if target.exists() and not replace:
            raise InputError(f"{target} exists already: choose another --out, or add --overwrite")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say what to do when a file of a run cannot be written: the disk is full, say, or has become read-only."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(
            f"cannot write {path} ({reason}): make room or mend the permissions, then --resume goes on from the last "
            "checkpoint; or give another --out"
        ) from error


def write_whole(path: Path, text: str) -> None:
    """Replace a file of a run at once; if that fails, the old one stays."""
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
    """Return how hidden names begin of what is to take that name."""
    return f".{target.name}.unfinished-"


def _lock(folder: Path) -> int:
    """Hold the folder as long as this process lives, so that nobody sweeps it away."""
    handle = os.open(folder, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return handle


def _sweep(target: Path) -> None:
    """Remove what killed runs to that target left: hidden folders which no living process holds."""
    for path in target.parent.iterdir():
        if not path.name.startswith(_prefix(target)):
            continue
        try:
            handle = _lock(path)
        except OSError:
            continue
        shutil.rmtree(path, ignore_errors=True)
        os.close(handle)
