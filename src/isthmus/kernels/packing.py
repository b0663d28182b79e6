"""Pack rows into messages of a few bits per feature: linear quantisation, row by row."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from isthmus.errors import InputError
from isthmus.kernels import twin
from isthmus.kernels.memory import Memory
from isthmus.kernels.ops import _SUFFIX, _core_for, _int, _ptr, _rows

_HEADER = 8  # bytes for lo and unit


def packed_width(width: int, bits: int) -> int:
    """Return the bytes of a packed row: lo and unit in float32, then the codes."""
    if bits not in (2, 4, 8):
        raise InputError(f"rows are packed into 2, 4 or 8 bits per feature, not {bits}")
    return _HEADER + (width * bits + 7) // 8


def pack_rows(
    x: Tensor,
    bits: int,
    *,
    rows: Tensor | None = None,
    stream: int | None = None,
    out: Tensor | None = None,
    memory: Memory | None = None,
) -> Tensor:
    r"""Quantise rows to 2^bits levels between their smallest and largest value; uint8 [k, packed_width(F, bits)].

    .. math:: lo_i = \min_f v_{if}, \quad unit_i = \frac{\max_f v_{if} - lo_i}{2^{bits} - 1}, \quad
              code_{if} = round\Bigl(\frac{v_{if} - lo_i}{unit_i}\Bigr)

    with v_i = x[rows[i]] (or x[i]). Rounding is to the nearest level or, given a ``stream``, up with the probability of
    the fraction, as a function of (stream, i, f): the error is then twice as large at worst, and zero on average.

    With a ``memory``, whose row b_i = base[positions[i]] (or base[i]) is updated, the errors do not add up over
    messages:

    - v_i = x_i + b_i, then b_i ← v_i - sent_i: what a message leaves out goes into the next one;
    - if ``delta``: v_i = x_i - b_i, then b_i ← b_i + sent_i: the reader sums the messages, so it holds b_i as well.

    Shapes: ``x`` [n, F] in float32, float64 or bfloat16; ``rows`` int32 [k]; the base of the memory in float64 if x is,
    else in float32. A row that is not finite is read back as NaN.
    """
    x, count = x.detach(), len(x) if rows is None else len(rows)
    if x.dtype not in _SUFFIX:
        raise InputError(f"rows of {x.dtype} cannot be packed: convert them to float32, float64 or bfloat16")
    shape = (count, packed_width(x.shape[1], bits))
    if out is None:
        out = torch.empty(shape, dtype=torch.uint8, device=x.device)
    _writable("out", out, torch.uint8, shape)
    base, positions, delta = memory or (None, None, False)
    if base is not None:
        wide = torch.float64 if x.dtype == torch.float64 else torch.float32
        _writable("memory.base", base, wide, (count if positions is None else len(base), x.shape[1]))
    _as_many("memory.positions", positions, count)
    lib = _core_for(x)
    if x.shape[1] == 0:
        out.zero_()
    elif lib is None:
        twin.pack_rows(x, bits, rows, stream, out, memory)
    else:
        x, rows, positions = _rows(x), _numbers(rows), _numbers(positions)
        getattr(lib, f"pack_rows_{_SUFFIX[x.dtype]}")(
            *(_int(count), _int(x.shape[1]), _ptr(x), _int(x.stride(0)), _ptr(rows)),
            *(_ptr(base), _int(0 if base is None else base.stride(0)), _ptr(positions), int(delta)),
            *(int(stream is not None), ctypes.c_uint64(stream or 0), bits),
            *(_ptr(out), _int(out.stride(0)), torch.get_num_threads()),
        )
    return out


def unpack_rows(
    message: Tensor, bits: int, out: Tensor, *, rows: Tensor | None = None, accumulate: bool = False
) -> Tensor:
    """Decode what `pack_rows` made: ``out[rows[i]] = lo_i + code_i * unit_i``, or ``+=`` with ``accumulate``.

    Shapes: ``message`` uint8 [k, packed_width(F, bits)]; ``out`` [n, F] in float32, float64 or bfloat16; ``rows`` int32
    [k], distinct (None: row i).
    """
    if out.dtype not in _SUFFIX:
        raise InputError(f"rows cannot be unpacked into {out.dtype}: give float32, float64 or bfloat16")
    count, width = len(out) if rows is None else len(rows), out.shape[1]
    _writable("message", message, torch.uint8, (count, packed_width(width, bits)))
    _writable("out", out, out.dtype, (len(out), width))
    lib = _core_for(out)
    if lib is None:
        twin.unpack_rows(message, bits, out, rows, accumulate)
        return out
    rows = _numbers(rows)
    getattr(lib, f"unpack_rows_{_SUFFIX[out.dtype]}")(
        *(_int(count), _int(width), _ptr(message), _int(message.stride(0)), _ptr(rows)),
        *(int(accumulate), bits, _ptr(out), _int(out.stride(0)), torch.get_num_threads()),
    )
    return out


def _numbers(rows: Tensor | None) -> Tensor | None:
    return None if rows is None else rows.int().contiguous()


def _as_many(name: str, rows: Tensor | None, count: int) -> None:
    if rows is not None and len(rows) != count:
        raise InputError(f"{name} names {len(rows)} rows, but {count} are packed: give one for each")


def _writable(name: str, tensor: Tensor, dtype: torch.dtype, shape: tuple[int, int]) -> None:
    """Refuse memory that is not laid out as the loops read and write it."""
    if tensor.dtype != dtype or tensor.shape != shape or (shape[1] > 1 and tensor.stride(1) != 1):
        given = f"{tensor.dtype} {list(tensor.shape)}"
        raise InputError(f"{name} is {given}: give {dtype} {list(shape)}, the features of a row side by side")
