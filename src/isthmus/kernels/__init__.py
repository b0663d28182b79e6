"""The few loops that must be fast: a small native core, and a plain torch twin of each."""

from isthmus.kernels.buffers import Buffers, room
from isthmus.kernels.cover import vertex_cover
from isthmus.kernels.csr import Csr, Scores, Spans, Weights
from isthmus.kernels.draws import draw_edges, draw_rows, random_keys, select_edges, select_rows, stream
from isthmus.kernels.host_rows import HostRows
from isthmus.kernels.levels import WaterFilling, draw_weighted, edge_probability, fill_levels, floored, inclusion
from isthmus.kernels.linear import bf16_is_fast, half_product
from isthmus.kernels.memory import Memory, memory_of
from isthmus.kernels.moments import column_moments, merge_moments, norm_grad, norm_grad_sums
from isthmus.kernels.neighbours import (
    Drawn,
    draw_by_weight,
    draw_labor,
    draw_uniform,
    gather_ids,
    number_nodes,
    row_spans,
    sort_rows,
)
from isthmus.kernels.ops import (
    DTYPES,
    aggregate,
    attention,
    attention_grad,
    both_positive,
    dropout,
    dropout_stored,
    gather_held,
    gather_rows,
    kept_positive,
    scatter_add_rows,
    sum_dtype,
    transpose,
)
from isthmus.kernels.packing import pack_rows, packed_width, unpack_rows
from isthmus.kernels.sparse import SparseMatrix

__all__ = [
    "DTYPES",
    "Buffers",
    "Csr",
    "Drawn",
    "HostRows",
    "Memory",
    "Scores",
    "Spans",
    "SparseMatrix",
    "WaterFilling",
    "Weights",
    "aggregate",
    "attention",
    "attention_grad",
    "bf16_is_fast",
    "both_positive",
    "column_moments",
    "draw_by_weight",
    "draw_edges",
    "draw_labor",
    "draw_rows",
    "draw_uniform",
    "draw_weighted",
    "dropout",
    "dropout_stored",
    "edge_probability",
    "fill_levels",
    "floored",
    "gather_held",
    "gather_ids",
    "gather_rows",
    "half_product",
    "inclusion",
    "kept_positive",
    "memory_of",
    "merge_moments",
    "norm_grad",
    "norm_grad_sums",
    "number_nodes",
    "pack_rows",
    "packed_width",
    "random_keys",
    "room",
    "row_spans",
    "scatter_add_rows",
    "select_edges",
    "select_rows",
    "sort_rows",
    "stream",
    "sum_dtype",
    "transpose",
    "unpack_rows",
    "vertex_cover",
]
