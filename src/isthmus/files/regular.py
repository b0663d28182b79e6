"""Open regular files for reading; refuse pipes and devices, which may never end."""

from __future__ import annotations

import errno
import hashlib
import os
import resource
import stat
from io import BufferedReader
from pathlib import Path

from isthmus.errors import InputError

CHECK = "check the path and its permissions"


def open_regular(path: Path, remedy: str = CHECK) -> BufferedReader:
    """Open a file for reading; refuse anything but a regular file, without waiting for it."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        raise unreadable(path, error, remedy) from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise InputError(f"{path} is not an ordinary file: {remedy}")
    return os.fdopen(handle, "rb")


def unreadable(path: Path | str, error: Exception, remedy: str = CHECK) -> InputError:
    """Return an error that says why a file cannot be read; too few file descriptors are no fault of the file."""
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return InputError(
            f"{path} cannot be opened: {most:,} files are open, and no more are allowed; raise the limit with "
            f"`ulimit -n {max(65536, 4 * most)}` in the shell that starts isthmus"
        )
    return InputError(f"{path} cannot be read ({getattr(error, 'strerror', None) or error}): {remedy}")


def os_error_line(error: OSError) -> str:
    """Describe an unexpected error of the system in one line, with what to do."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return str(unreadable(str(error.filename or "another file"), error))
    return f"{error}: check that path, its permissions and the free space"


def is_plain_name(name: str) -> bool:
    """Return whether a name found in a file is a plain file name that leads to no other folder."""
    return name not in ("", ".", "..") and "\0" not in name and Path(name).name == name


def sha256(path: Path, remedy: str = CHECK) -> str:
    """Return the sha256 of a file's content."""
    with open_regular(path, remedy) as file:
        try:
            return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise unreadable(path, error, remedy) from None
