"""A run folder is claimed before anything is written to it, and a command that fails leaves no empty one behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from isthmus.engine.lock import FolderLock
from isthmus.files.atomic import writing


@contextmanager
def claimed(folder: Path, new: bool = False, patient: bool = False) -> Iterator[None]:
    """Hold the folder, which is made if need be, while the block lasts; nobody else may write to it.

    ``new``: it was made for this command. If the block fails, folders that were made for it and are empty are removed.
    ``patient``: see `FolderLock`.
    """
    made = [folder, folder.parent] if new else [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        with FolderLock(folder, patient):
            yield
    except BaseException:
        with suppress(OSError):  # at the first that is not empty
            for path in made:
                path.rmdir()
        raise
