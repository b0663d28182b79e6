"""Import code that users name as ``package.module:NAME``: models, recipes, samplers, methods of cutting.

Only names that a user gives are imported. A name that is read from a file is not, since a file may come from anybody:
whoever reads one asks `is_outside` first.
"""

from __future__ import annotations

import importlib
import os
import sys
from contextvars import ContextVar
from typing import Any

from isthmus.errors import InputError

FORM = "package.module:NAME"
_importing: ContextVar[str] = ContextVar("importing", default="")  # the name whose module is being imported


def is_outside(name: Any) -> bool:
    """Return whether this is the name of code outside of Isthmus."""
    return isinstance(name, str) and ":" in name


def imported(name: str, what: str) -> Any:
    """Return the object of that name; modules in the current folder are found, too. ``what``: its kind, for errors."""
    module, _, attribute = name.partition(":")
    if module.endswith(".py"):
        raise InputError(f"{name} names a file: name its module, as in {module.removesuffix('.py')}:{attribute}")
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())
    before = _importing.set(name)
    try:
        found = importlib.import_module(module)
    except InputError:
        raise
    except (ImportError, ValueError) as error:
        raise InputError(f"cannot import the {what} {name} ({error}): run from its folder, or install it") from error
    finally:
        _importing.reset(before)
    try:
        for step in attribute.split("."):
            found = getattr(found, step)
    except AttributeError as error:
        raise InputError(f"there is no such {what} as {name} ({error}): correct the name after the colon") from error
    return found


def refuse_while_importing() -> None:
    """Raise an InputError in a script that is imported for its model and starts to train again, without end."""
    if name := _importing.get():
        raise InputError(
            f"{name.partition(':')[0]} is imported for {name}, and starts workers itself: put that call under "
            '`if __name__ == "__main__":`, or the model into a file of its own'
        )
