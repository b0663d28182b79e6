"""Isthmus trains graph neural networks across machines, over narrow links.

>>> import isthmus
>>> graph = isthmus.load("mine.npz")                                # or isthmus.from_pyg(data)
>>> book = isthmus.partition(graph, 4, out="parts")
>>> result = isthmus.train(book, model="sage", recipe="pipegcn")    # result.scores, result.run, …

For a training loop of your own there is `isthmus.Worker`. Everything is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from isthmus.errors import InputError, WorkerError
from isthmus.wording import speaks_python

if TYPE_CHECKING:
    from isthmus.api import TrainResult, Worker, predict, train
    from isthmus.api.neighbor_loader import NeighborLoader
    from isthmus.graph import Graph, from_pyg, load
    from isthmus.partition import partition_source as partition

__version__ = "0.1.0"

_HOMES = {
    "Graph": "isthmus.graph",
    "NeighborLoader": "isthmus.api.neighbor_loader",
    "TrainResult": "isthmus.api",
    "Worker": "isthmus.api",
    "from_pyg": "isthmus.graph",
    "load": "isthmus.graph",
    "predict": "isthmus.api",
    "train": "isthmus.api",
}

__all__ = [
    "Graph",
    "InputError",
    "NeighborLoader",
    "TrainResult",
    "Worker",
    "WorkerError",
    "from_pyg",
    "load",
    "partition",
    "predict",
    "train",
]


def __getattr__(name: str) -> Any:
    if name == "partition":  # a package that can be called
        return import_module("isthmus.partition")
    if name in _HOMES:
        found = getattr(import_module(_HOMES[name]), name)
        if not isinstance(found, type):  # the commands use the function itself, whose errors name command-line options
            found = globals()[name] = speaks_python(found)
        return found
    raise AttributeError(f"module 'isthmus' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
