"""The run secret, which only the workers of one run know, and which admits them to the meeting point.

Launchers that start workers themselves make one for each run; for workers started otherwise it is given in the
environment, the same on every machine.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from isthmus.errors import InputError

SECRET, SECRET_FILE = "ISTHMUS_SECRET", "ISTHMUS_SECRET_FILE"
LEAST, MOST = 16, 4096  # characters
MAKE = "`openssl rand -hex 32` makes one"


def new_secret() -> str:
    """Return a new secret that nobody can guess."""
    return secrets.token_hex(32)


def run_secret(environ: Mapping[str, str] = os.environ) -> bytes:
    """Return the secret in the environment, given directly or as a file; empty if there is none."""
    where, given = SECRET, environ.get(SECRET, "")
    if not given and (path := environ.get(SECRET_FILE, "")):
        where = f"{SECRET_FILE} {path}"
        try:
            with Path(path).open() as file:
                given = file.read(MOST + 1).strip()
        except (OSError, ValueError) as error:
            raise InputError(f"cannot read the run secret in {where} ({error}): correct the path") from error
        if not given:
            raise InputError(f"{where} is empty: write a run secret into it; {MAKE}")
    if given and not LEAST <= len(given) <= MOST:
        raise InputError(f"the run secret of {where} has {len(given)} characters, not {LEAST} to {MOST}: {MAKE}")
    return given.encode()
