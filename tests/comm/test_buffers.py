"""Buffers: memory that is lent belongs to one caller, and is used again once it was given back."""

from __future__ import annotations

import numpy as np
import torch

from isthmus.comm import Buffers


def test_buffers_never_lend_memory_twice():
    draw, buffers, lent, seen = np.random.default_rng(0), Buffers(), [], set()
    for turn in range(3000):
        if lent and draw.random() < 0.5:
            tensor, mark = lent.pop(int(draw.integers(len(lent))))
            assert (tensor == mark).all(), "written by another"
            buffers.give(tensor)
            buffers.give(tensor)  # giving twice gives once
        shape = tuple(int(n) for n in draw.integers(0, 40, size=2))
        tensor = buffers.take(shape, [torch.float64, torch.uint8, torch.bfloat16][turn % 3])
        assert tensor.shape == shape
        seen.add(tensor.data_ptr())
        lent.append((tensor.fill_(turn % 128), turn % 128))
    buffers.give(torch.ones(5))  # not lent here: left alone
    assert all((tensor == mark).all() for tensor, mark in lent)
    assert len(seen) < 3000  # what was given back is used again


def test_lent_memory_comes_back_when_its_last_view_is_gone():
    buffers = Buffers()
    rows = buffers.lend((100, 4), torch.bfloat16)
    place, view = rows.data_ptr(), rows[10:]
    del rows
    other = buffers.lend((100, 4), torch.bfloat16)  # a view still reads the first
    assert other.data_ptr() != place
    del view
    assert buffers.lend((99, 4), torch.bfloat16).data_ptr() == place
