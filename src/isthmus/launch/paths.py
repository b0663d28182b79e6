"""Decide where worker processes import from: installed packages, and for a user's model the paths of the starter.

With ``python -m``, Python searches the working folder first: a file queue.py there would replace Python's module of
that name. Workers search it last, and only if the user names a model of their own.
"""

from __future__ import annotations

import json
import os
import site
import sys
from pathlib import Path

import isthmus

VARIABLE = "ISTHMUS_PATHS"


def told_paths(model: str) -> dict[str, str]:
    """Return the environment variables that tell a worker process where to import from; ``model`` names its model."""
    first = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if not _is_here(folder)]
    root = str(Path(isthmus.__file__).parents[1])
    if root in sys.path and root not in (*site.getsitepackages(), *first):
        first.append(root)  # the starting program may have found this package by a path of its own
    last = [folder for folder in sys.path if not _is_here(folder)] if ":" in model else []
    return {"PYTHONPATH": os.pathsep.join(first), VARIABLE: json.dumps(last)}


def look_last(environ: dict[str, str] | os._Environ[str] = os.environ) -> None:
    """Append the folders that the starter named to the import path of this worker process."""
    sys.path.extend(folder for folder in json.loads(environ.get(VARIABLE, "[]")) if folder not in sys.path)


def _is_here(folder: str) -> bool:
    return os.path.realpath(folder or ".") == os.path.realpath(".")
