"""Cut a graph into parts on disk, one per worker; the book that describes them; their quality."""

import sys
from inspect import signature
from types import ModuleType

from isthmus.partition.book import Book, is_parts_folder
from isthmus.partition.command import partition_source
from isthmus.partition.describe import describe
from isthmus.partition.methods import BALANCE, METHODS, CutOptions, Method, assign
from isthmus.partition.order import ORDERS, locality_order
from isthmus.partition.part import Part, PartInfo
from isthmus.partition.run import partition
from isthmus.partition.shares import own_part, shares
from isthmus.wording import speaks_python

__all__ = [
    "BALANCE",
    "METHODS",
    "ORDERS",
    "Book",
    "CutOptions",
    "Method",
    "Part",
    "PartInfo",
    "assign",
    "describe",
    "is_parts_folder",
    "locality_order",
    "own_part",
    "partition",
    "partition_source",
    "shares",
]


class _Command(ModuleType):
    """The type of this module, which can also be called: ``isthmus.partition(source, parts, out)``."""

    __call__ = staticmethod(speaks_python(partition_source))


sys.modules[__name__].__class__ = _Command
__signature__ = signature(partition_source)
