"""The coded sum over the workers."""

from __future__ import annotations

import pytest
import torch

from isthmus import kernels
from isthmus.comm import Hub, Where, codec, sum_coded
from isthmus.comm.coded_allreduce import BLOCK

WHERE = Where("weights", "reduce", 3, "weights")


def shares(size: int, count: int, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(size * count)
    return [torch.randn(count, generator=draw, dtype=dtype) for _ in range(size)]


def summed(values: list[torch.Tensor], bits: int | str, seed: int = 0, where: Where = WHERE):
    """Return what each worker holds after the sum: values, the exact part, and its ledger."""

    def work(transport):
        mine = values[transport.rank].clone()
        in_full = mine.new_tensor([transport.rank + 0.1, 1.0])
        sum_coded(mine, in_full, codec(bits, "stochastic"), transport, where, seed)
        return mine, in_full, transport.ledger

    return Hub(len(values)).run(work)


@pytest.mark.parametrize("bits", [16, "fp16", 8])
@pytest.mark.parametrize(("size", "count"), [(2, 5), (3, 1000), (4, 4 * BLOCK), (4, 4 * BLOCK + 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_all_hold_the_same_bits_close_to_the_sum(bits, size, count, dtype):
    given = shares(size, count, dtype)
    results = summed(given, bits)
    for values, in_full, _ in results:
        assert torch.equal(values, results[0][0])
        torch.testing.assert_close(in_full, in_full.new_tensor([sum(q + 0.1 for q in range(size)), size]))
    want = torch.stack(given).sum(0)
    # Two roundings of values within ±4 (or of their sum) by one step of 255, or by 8 or 11 binary digits.
    step = {16: 2**-8, "fp16": 2**-10, 8: 2 / 255}[bits]
    assert float((results[0][0] - want).abs().max()) <= 2 * size * 4 * step


def test_coarse_values_are_rounded_without_bias():
    given, runs = shares(3, 300), 400
    mean = torch.stack([summed(given, 8, seed)[0][0] for seed in range(runs)]).mean(0)
    want, one = torch.stack(given).sum(0), summed(given, 8)[0][0]
    spread = (one - want).square().mean().sqrt()
    assert float((mean - want).square().mean().sqrt()) <= 2 * spread / runs**0.5


def test_draws_depend_on_seed_and_step_alone():
    given = shares(2, 600)
    again, other = summed(given, 8)[0][0], summed(given, 8, where=WHERE._replace(step=4))[0][0]
    assert torch.equal(summed(given, 8)[0][0], again)
    assert not torch.equal(again, other)


def test_a_quarter_of_the_bytes_travels():
    count, size = 40 * BLOCK, 4
    ledger = summed(shares(size, count, torch.float32), 8)[0][2]
    blocks = count // BLOCK // size * (size - 1)
    first = blocks * kernels.packed_width(BLOCK, 8) + (size - 1) * 8  # and two floats in full to everyone
    assert ledger.kinds["weights"] == first + blocks * kernels.packed_width(BLOCK, 8)
    assert ledger.reduce_seconds > 0


def test_what_is_not_finite_stays_so():
    given = shares(2, 600)
    given[1][7] = float("inf")
    assert not bool(summed(given, 8)[0][0].isfinite().all())
