"""The few loops that must be fast: a small native core, and a torch twin for each."""

from isthmus.kernels.csr import Csr
from isthmus.kernels.ops import (
    aggregate,
    attention,
    attention_grad,
    dropout,
    gather_rows,
    kept_positive,
    scatter_add_rows,
    transpose,
)
from isthmus.kernels.sparse import SparseMatrix

__all__ = [
    "Csr",
    "SparseMatrix",
    "aggregate",
    "attention",
    "attention_grad",
    "dropout",
    "gather_rows",
    "kept_positive",
    "scatter_add_rows",
    "transpose",
]
