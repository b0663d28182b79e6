"""Packed rows: native loops and twins bit for bit, what quantisation promises, and memories that keep errors flat."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import pytest
import torch
from products import pairwise

from isthmus import kernels
from isthmus.errors import InputError
from isthmus.kernels import Memory, native, ops

DTYPES = [torch.float32, torch.float64, torch.bfloat16]
WIDTHS = [1, 3, 7, 8, 9, 41, 64, 65, 128, 256, 602]


@cache
def cores() -> dict[str, ctypes.CDLL]:
    """Every core that this processor can run: they must agree, because workers may run on unlike machines."""
    best = native.path()
    if best is None:
        return {}
    level = best.name.split(".")[0].removeprefix("_core_")
    usable = native._LEVELS[native._LEVELS.index(level) :]
    files = {each: Path(str(best).replace(f"_core_{level}", f"_core_{each}")) for each in usable}
    return {each: ctypes.CDLL(str(file)) for each, file in files.items() if file.exists()}


@pytest.fixture(autouse=True)
def one_thread():
    """Work this small is not worth a second one; what more threads do has a test of its own."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(params=list(cores()))
def use(request, monkeypatch):
    """A switch between one native core and the twins."""
    return lambda which: monkeypatch.setattr(ops, "core", lambda: cores()[request.param] if which == "native" else None)


@pytest.fixture(params=["native", "twin"])
def either(request, monkeypatch):
    """The test runs on the best core and on the twins."""
    if request.param == "twin":
        monkeypatch.setattr(ops, "core", lambda: None)
    elif native.path() is None:
        pytest.skip("the native core was not built: no C++ compiler at install")


def wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def some_rows(count: int, width: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Rows of unlike scale and offset; among them constant ones, zeros of either sign and many equal values."""
    draw = torch.Generator().manual_seed(seed)
    scale = 10 ** (torch.rand(count, 1, generator=draw, dtype=torch.float64) * 8 - 4)
    x = torch.randn(count, width, generator=draw, dtype=torch.float64) * scale
    x += torch.randn(count, 1, generator=draw, dtype=torch.float64)
    x[1], x[2], x[3] = 0, 2.5, -0.0
    x[3, ::2], x[4] = 0.0, x[4].clamp_min(0)
    x[5] = torch.arange(width) % 16 * 0.5  # codes half way between two levels
    return x.to(dtype)


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8))


@pytest.mark.parametrize(*pairwise(dtype=DTYPES, width=WIDTHS, bits=[2, 4, 8]))
def test_native_and_twin_agree_bit_for_bit(use, dtype, width, bits):
    x, rows = some_rows(40, width, dtype), torch.randperm(40)[:25].int()
    places, held = torch.randperm(30)[:25].int(), some_rows(30, width, wide(dtype), seed=1)
    for stream in (None, 2**63 + 7):
        for kind in ("none", "feedback", "delta"):
            results = []
            for which in ("native", "twin"):
                use(which)
                base = held.clone()
                memory = None if kind == "none" else Memory(base, places, kind == "delta")
                message = kernels.pack_rows(x, bits, rows=rows, stream=stream, memory=memory)
                all_rows = kernels.pack_rows(x, bits, stream=stream)
                out = [torch.ones(40, width, dtype=each) for each in DTYPES]
                read = [kernels.unpack_rows(message, bits, each.clone(), rows=rows) for each in out]
                added = [kernels.unpack_rows(all_rows, bits, each.clone(), accumulate=True) for each in out]
                results.append([message, all_rows, *read, *added, base])
            assert all(same(native, twin) for native, twin in zip(*results, strict=True))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf, 3e38])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_rows_that_are_not_finite_are_read_as_nan_and_harm_no_other(use, bad, bits):
    for dtype in DTYPES:
        x = some_rows(9, 41, dtype)
        x[6, 17], x[6, 3], x[7] = bad, -3e38, bad
        results = []
        for which in ("native", "twin"):
            use(which)
            for stream in (None, 5):
                base = torch.zeros(9, 41, dtype=wide(dtype))
                message = kernels.pack_rows(x, bits, stream=stream, memory=Memory(base))
                out = kernels.unpack_rows(message, bits, torch.zeros(9, 41, dtype=dtype))
                assert out[[0, 1, 2, 3, 4, 5, 8]].isfinite().all()
                assert bad == 3e38 or out[[6, 7]].isnan().all()
                results.append(message)
        assert same(results[0], results[2])
        assert same(results[1], results[3])


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_errors_are_within_their_bounds(dtype, bits):
    x = some_rows(60, 100, dtype)
    value, levels = x.double(), 2**bits - 1
    span = value.amax(1, keepdim=True) - value.amin(1, keepdim=True)
    slack = 4e-7 * value.abs().amax(1, keepdim=True)
    for stream, share in ((None, 0.5), (3, 1.0)):
        out = torch.empty(60, 100, dtype=wide(dtype))
        kernels.unpack_rows(kernels.pack_rows(x, bits, stream=stream), bits, out)
        assert ((out.double() - value).abs() <= share * span / levels + slack).all()


@pytest.mark.usefixtures("either")
def test_constant_rows_and_levels_are_exact():
    x = torch.tensor([[2.5] * 6, [0.0] * 6, [-7e-20] * 6, [0.0, 5, 10, 15, 5, 0]])
    for bits in (2, 4, 8):
        for stream in (None, 1):
            out = kernels.unpack_rows(kernels.pack_rows(x, bits, stream=stream), bits, torch.empty(4, 6))
            assert torch.equal(out, x)


def test_stochastic_rounding_is_right_on_average():
    x, turns = some_rows(6, 30, seed=2), 3000
    x[:, 0], x[:, 1] = 0.0, 3.0
    x = x.clamp(0, 3)
    total, out = torch.zeros(6, 30, dtype=torch.float64), torch.empty(6, 30)
    for turn in range(turns):
        total += kernels.unpack_rows(kernels.pack_rows(x, 2, stream=kernels.stream(turn)), 2, out)
    fraction = x.double() - x.double().floor()  # a level is 1
    error = (fraction * (1 - fraction) / turns).sqrt()
    assert ((total / turns - x).abs() <= 5 * error + 1e-6).all()
    assert abs((total / turns - x).mean()) < 4 * error.mean() / 180**0.5


def test_stochastic_rounding_depends_on_stream_row_and_feature():
    x = torch.full((50, 64), 0.5)
    x[:, 0], x[:, 1] = 0.0, 3.0
    codes = [kernels.unpack_rows(kernels.pack_rows(x, 2, stream=s), 2, torch.empty(50, 64))[:, 2:] for s in (1, 1, 2)]
    assert torch.equal(codes[0], codes[1])
    for one, other in ((codes[0], codes[2]), (codes[0][1:], codes[0][:-1]), (codes[0][:, 1:], codes[0][:, :-1])):
        assert abs((one == other).float().mean() - 0.5) < 0.05


@pytest.mark.usefixtures("either")
def test_deltas_against_what_the_reader_holds_do_not_drift():
    """300 steps of a drifting row at 4 bits: with base the reader is one quantisation away, without it drifts off."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(20, 64, generator=draw)
    base, reader, naive = torch.zeros(20, 64), torch.zeros(20, 64), torch.zeros(20, 64)
    last, worst, loose = torch.zeros(20, 64), [], []
    for _ in range(300):
        x = x + 0.1 * torch.randn(20, 64, generator=draw)
        change = x - base
        bound = (change.amax(1) - change.amin(1)) / 15 / 2 + 1e-5
        message = kernels.pack_rows(x, 4, memory=Memory(base, delta=True))
        kernels.unpack_rows(message, 4, reader, accumulate=True)
        assert torch.equal(reader, base)  # the sender knows what the reader holds
        assert ((x - reader).abs().amax(1) <= bound).all()
        worst.append(float((x - reader).abs().max()))
        kernels.unpack_rows(kernels.pack_rows(x - last, 4), 4, naive, accumulate=True)
        last = x
        loose.append(float((x - naive).abs().max()))
    assert max(worst[200:]) < 1.5 * max(worst[50:150])
    assert loose[-1] > 3 * max(worst[200:])
    assert sum(loose[250:]) > 1.5 * sum(loose[20:70])


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("dtype", DTYPES)
def test_feedback_sends_later_what_a_message_left_out(dtype):
    """The sum of all messages is the sum of all rows, up to the last error."""
    draw, kind = torch.Generator().manual_seed(0), wide(dtype)
    base, sent, meant = (torch.zeros(15, 33, dtype=kind) for _ in range(3))
    for turn in range(100):
        x = torch.randn(15, 33, generator=draw, dtype=kind).to(dtype)
        message = kernels.pack_rows(x, 2, memory=Memory(base), stream=None if turn % 2 else turn)
        kernels.unpack_rows(message, 2, sent, accumulate=True)
        meant += x.to(kind)
    torch.testing.assert_close(sent + base, meant, rtol=0, atol=1e-4)
    assert base.abs().max() < 5


def test_results_do_not_depend_on_the_number_of_threads():
    x, rows, results = some_rows(300, 41), torch.randperm(300)[:200].int(), []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        base = torch.ones(200, 41)
        message = kernels.pack_rows(x, 4, rows=rows, stream=8, memory=Memory(base))
        results.append((message, base, kernels.unpack_rows(message, 4, torch.zeros(300, 41), rows=rows)))
    for result in results[1:]:
        assert all(same(one, other) for one, other in zip(results[0], result, strict=True))


@pytest.mark.usefixtures("either")
def test_only_the_named_rows_are_written():
    x, rows = torch.randn(20, 10), torch.tensor([3, 19, 0], dtype=torch.int32)
    message = torch.full((6, kernels.packed_width(10, 4)), 170, dtype=torch.uint8)
    assert kernels.pack_rows(x, 4, rows=rows, out=message[1:4]).data_ptr() == message[1].data_ptr()
    assert (message[[0, 4, 5]] == 170).all()
    assert same(message[1:4], kernels.pack_rows(x[rows.long()], 4))
    wide_out = torch.full((20, 30), 7.0)
    kernels.unpack_rows(message[1:4], 4, wide_out[:, 5:15], rows=rows)
    want = torch.full((20, 30), 7.0)
    want[rows.long(), 5:15] = kernels.unpack_rows(message[1:4], 4, torch.empty(3, 10))
    assert torch.equal(wide_out, want)
    assert same(kernels.pack_rows(x.t().contiguous().t(), 4), kernels.pack_rows(x, 4))


@pytest.mark.usefixtures("either")
def test_layout_of_a_packed_row():
    x = torch.tensor([[1.0, 4.0, 2.0, 3.0, 4.0]])
    message = kernels.pack_rows(x, 2)
    assert kernels.packed_width(5, 2) == message.shape[1] == 10
    assert message[0, :8].view(torch.float32).tolist() == [1.0, 1.0]
    assert message[0, 8:].tolist() == [0 | 3 << 2 | 1 << 4 | 2 << 6, 3]
    assert torch.equal(kernels.unpack_rows(message, 2, torch.empty(1, 5)), x)
    nibbles = kernels.pack_rows(x * 5, 4)
    assert nibbles[0, 8:].tolist() == [0 | 15 << 4, 5 | 10 << 4, 15]
    assert kernels.pack_rows(x * 85, 8)[0, 8:].tolist() == [0, 255, 85, 170, 255]


@pytest.mark.usefixtures("either")
def test_no_rows_and_no_features():
    for count, width in ((0, 5), (4, 0), (0, 0)):
        message = kernels.pack_rows(torch.zeros(count, width), 4, stream=3, memory=Memory(torch.zeros(count, width)))
        assert message.shape == (count, kernels.packed_width(width, 4))
        assert kernels.unpack_rows(message, 4, torch.zeros(count, width), accumulate=True).shape == (count, width)


def test_what_does_not_fit_is_refused():
    x, message = torch.zeros(4, 9), torch.zeros(4, 17, dtype=torch.uint8)
    with pytest.raises(InputError, match="2, 4 or 8 bits"):
        kernels.pack_rows(x, 3)
    with pytest.raises(InputError, match="float16"):
        kernels.pack_rows(x.half(), 8)
    with pytest.raises(InputError, match="out is"):
        kernels.pack_rows(x, 4, out=message)
    with pytest.raises(InputError, match=r"memory\.base is"):
        kernels.pack_rows(x.bfloat16(), 8, memory=Memory(x.bfloat16()))
    with pytest.raises(InputError, match=r"memory\.positions names 2"):
        kernels.pack_rows(x, 8, memory=Memory(x.clone(), torch.arange(2, dtype=torch.int32)))
    with pytest.raises(InputError, match="message is"):
        kernels.unpack_rows(message, 4, x)
    with pytest.raises(InputError, match="side by side"):
        kernels.unpack_rows(message, 8, torch.zeros(9, 4).t())
