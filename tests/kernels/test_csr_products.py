"""torch's sparse CSR products against the twin, for everything that `ops.aggregate` may be asked."""

from __future__ import annotations

import pytest
import torch
from products import pairwise

from isthmus.kernels import Csr, Weights, on_csr, twin


def pattern(rows=23, cols=31, seed=0):
    """Empty rows, a hub, duplicate columns."""
    draw = torch.Generator().manual_seed(seed)
    degree = torch.randint(0, 4, (rows,), generator=draw)
    degree[[0, 7]] = torch.tensor([0, 60])
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), degree.cumsum(0)])
    return Csr(indptr, torch.randint(cols, (int(indptr[-1]),), generator=draw, dtype=torch.int32), cols)


@pytest.mark.parametrize(
    *pairwise(
        dtype=[torch.float32, torch.float64],
        width=[1, 5, 300],
        form=["whole", "compact", "middle"],
        weighted=[(), ("col",), ("row", "edge"), ("row", "col", "edge")],
        accumulate=[False, True],
        add_self=[False, True],
    )
)
def test_it_gives_what_the_twin_gives(dtype, width, form, weighted, accumulate, add_self):
    csr, draw = pattern(), torch.Generator().manual_seed(1)
    if form == "compact":
        csr = csr.compact()
    if form == "middle":
        csr = Csr(csr.indptr[5:15], csr.indices, csr.num_cols)
    x = torch.randn(csr.num_cols, width, generator=draw, dtype=dtype)
    sizes = {"row": 23, "col": csr.num_cols, "edge": csr.num_edges}
    weights = {name: torch.rand(sizes[name], generator=draw, dtype=dtype) for name in weighted}
    if form == "middle" and "row" in weights:
        weights["row"] = weights["row"][: csr.num_rows]
    rows = 23 if form == "compact" else csr.num_rows
    one, other = (torch.full((rows, width), 0.5, dtype=dtype) for _ in range(2))
    assert on_csr.runs(csr, x)
    on_csr.aggregate(csr, x, Weights(**weights, add_self=add_self), one, accumulate)
    twin.aggregate(csr, x, Weights(**weights, add_self=add_self), other, accumulate)
    torch.testing.assert_close(one, other, rtol=1e-6 if dtype == torch.float32 else 1e-13, atol=1e-6)


def test_what_it_does_not_have_is_left_to_the_twin():
    csr, x = pattern(), torch.ones(31, 4)
    assert not on_csr.runs(csr, x.bfloat16())
    assert not on_csr.runs(Csr(csr.indptr * 0, csr.indices[:0], 31), x)
    assert not on_csr.runs(csr, x[:, :0])
