"""Lock a run folder before anything is written to it, and remove it if the command fails and leaves it empty."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from isthmus.engine.lock import FolderLock
from isthmus.files.atomic import writing


@contextmanager
def claimed(folder: Path, new: bool = False, patient: bool = False) -> Iterator[None]:
    """Make the folder if needed and lock it during the block, so that no other command writes to it.

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
        with suppress(OSError):  # stop at the first that is not empty
            for path in made:
                path.rmdir()
        raise
