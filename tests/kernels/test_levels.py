"""Water-filled probabilities against the sort of theorem 2; every native loop of them against its twin."""

from __future__ import annotations

import ctypes
import math

import pytest
import torch
from torch import Tensor

from isthmus import kernels
from isthmus.errors import InputError
from isthmus.kernels import Csr, WaterFilling, native, ops


def cores() -> dict[str, ctypes.CDLL | None]:
    """Every core that this processor can run, and None for the twins."""
    best = native.path()
    if best is None:
        return {"twin": None}
    level = best.name.split(".")[0].removeprefix("_core_")
    files = [best.with_name(best.name.replace(level, each)) for each in native._LEVELS]
    usable = [file for file in files[native._LEVELS.index(level) :] if file.exists()]
    return {file.name.split(".")[0]: ctypes.CDLL(str(file)) for file in usable} | {"twin": None}


CORES = cores()


@pytest.fixture(autouse=True)
def one_thread():
    """Work this small is not worth a second one; what more threads do has a test of its own."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(params=list(CORES))
def each(request, monkeypatch):
    """The test runs on each core and on the twins."""
    monkeypatch.setattr(ops, "core", lambda: CORES[request.param])


@pytest.fixture(params=list(CORES)[:-1])
def both(request, monkeypatch):
    """both(function, …): what it returns on one native core and on the twins."""

    def run(function, *arguments, **options):
        results = []
        for core in (CORES[request.param], None):
            monkeypatch.setattr(ops, "core", lambda core=core: core)
            results.append(function(*arguments, **options))
        return results

    return run


def random_csr(rows: int, cols: int, seed: int = 0, share: float = 0.3) -> Csr:
    """Columns ascending, rows of unequal length, some of them empty."""
    draw = torch.Generator().manual_seed(seed)
    present = torch.rand(rows, cols, generator=draw) < torch.rand(rows, 1, generator=draw) * 2 * share
    present[::7] = False
    indptr = torch.cat([torch.zeros(1, dtype=torch.long), present.sum(1).cumsum(0)])
    return Csr(indptr, present.nonzero()[:, 1].int(), cols)


def some_values(kind: str, count: int, seed: int = 0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    if kind == "equal":
        return torch.full((count,), 3.0, dtype=torch.float64)
    if kind == "tied":
        return torch.randint(1, 4, (count,), generator=draw).double()
    steepness = 8.0 if kind == "steep" else 1.0
    value = (torch.randn(count, generator=draw, dtype=torch.float64) * steepness).exp()
    return value * (torch.rand(count, generator=draw) < 0.3) if kind == "zeros" else value


def by_sorting(scores: list[float], budget: float) -> list[float]:
    """Theorem 2 as printed: k is the largest number with B + k - |N| ≤ (sum of the k smallest) / (k-th smallest)."""
    total = len(scores)
    if budget >= total:
        return [1.0] * total
    order = sorted(range(total), key=lambda j: scores[j])
    sums = [0.0]
    for j in order:
        sums.append(sums[-1] + scores[j])
    k = max(k for k in range(1, total + 1) if budget + k - total <= sums[k] / scores[order[k - 1]])
    p = [1.0] * total
    for j in order[:k]:
        p[j] = (budget + k - total) * scores[j] / sums[k]
    return p


@pytest.mark.usefixtures("each")
@pytest.mark.parametrize("kind", ["plain", "steep", "equal", "tied", "zeros"])
@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.97, "one", "half", "all but a bit"])
def test_probabilities_are_those_of_theorem_2(kind, share):
    inner, halo = random_csr(60, 60, 1), random_csr(60, 45, 2, share=0.1)
    value, halo_value = kernels.floored(some_values(kind, 60, 3), some_values(kind, 45, 4))
    degree = (inner.indptr.diff() + halo.indptr.diff()).double()
    fixed = {"one": torch.ones_like(degree), "half": (degree / 2).floor(), "all but a bit": degree * (1 - 1e-13)}
    budget = fixed[share] if isinstance(share, str) else share * degree
    level = kernels.fill_levels(inner, halo, value, halo_value, budget)
    filling, halo_filling = WaterFilling(level, value), WaterFilling(level, halo_value)
    p = kernels.edge_probability(inner, filling), kernels.edge_probability(halo, halo_filling)
    for row in range(60):
        got, scores = [], []
        for csr, its_p, its_value in zip((inner, halo), p, (value, halo_value), strict=True):
            got += its_p[csr.indptr[row] : csr.indptr[row + 1]].tolist()
            scores += its_value[csr.indices[csr.indptr[row] : csr.indptr[row + 1]].long()].tolist()
        expected = min(float(budget[row]), len(scores))
        assert abs(math.fsum(got) - expected) <= 1e-12 * expected
        if not scores:
            assert level[row] == 0
            continue
        assert got == pytest.approx(by_sorting(scores, float(budget[row])), rel=1e-12, abs=1e-12)
        for chance, score in zip(got, scores, strict=True):  # optimality: full, or in one ratio to its score
            assert chance == 1 <= level[row] * score or chance / score == pytest.approx(float(level[row]), rel=1e-12)


@pytest.mark.usefixtures("each")
def test_budgets_at_the_ends():
    """None, all, more than all, no edges; and budgets that full edges use up exactly."""
    csr = Csr(torch.tensor([0, 3, 6, 9, 9, 9, 12, 14]), torch.tensor([0, 1, 2] * 4 + [0, 1], dtype=torch.int32), 3)
    value = torch.tensor([1.0, 1.0, 1e-30], dtype=torch.float64)
    budget = torch.tensor([0, 3, torch.inf, 0, 2, 2, 1], dtype=torch.float64)
    level = kernels.fill_levels(csr, None, value, None, budget)
    assert level[:5].tolist() == [0, torch.inf, torch.inf, 0, 0]
    p = kernels.edge_probability(csr, WaterFilling(level, value))
    assert p[:9].tolist() == [0] * 3 + [1] * 6
    assert p[9:12].tolist() == [1, 1, 1e-30]
    assert p[12:].tolist() == [0.5, 0.5]


@pytest.mark.usefixtures("each")
def test_zeros_share_what_positive_scores_leave():
    csr = Csr(torch.tensor([0, 4, 8, 12]), torch.tensor([0, 1, 2, 3, 0, 1, 2, 3, 2, 3, 4, 5]).int(), 6)
    (value,) = kernels.floored(torch.tensor([5.0, 7.0, 0.0, 0.0, 0.0, 0.0]))
    level = kernels.fill_levels(csr, None, value, None, torch.tensor([3.0, 1.0, 1.0]))
    p = kernels.edge_probability(csr, WaterFilling(level, value)).view(3, 4)
    torch.testing.assert_close(p[0], torch.tensor([1, 1, 0.5, 0.5]).double(), rtol=1e-14, atol=0)
    torch.testing.assert_close(p[1, :2], torch.tensor([5 / 12, 7 / 12]).double(), rtol=1e-7, atol=0)
    assert (p[1, 2:] / 1e-31 < 10).all()
    torch.testing.assert_close(p[2], torch.full((4,), 0.25).double(), rtol=1e-14, atol=0)
    for seed in range(200):
        kept = kernels.draw_weighted(seed, csr, WaterFilling(level, value), (torch.arange(3), torch.arange(6)))[0]
        assert (kept.indices[kept.indptr[1] : kept.indptr[2]] < 2).all()  # so unlikely an edge is never drawn


def test_scores_are_floored_together():
    small, large, none = kernels.floored(torch.tensor([0.0, 0.5]), torch.tensor([2.0, 1.0]), torch.zeros(0))
    assert (small.tolist(), large.tolist(), none.tolist()) == ([1e-30, 0.25], [1.0, 0.5], [])
    assert kernels.floored(torch.zeros(3))[0].tolist() == [1, 1, 1]
    for largest in (5e-324, 1e308):
        assert kernels.floored(torch.tensor([largest, 0.0], dtype=torch.float64))[0].tolist() == [1, 1e-30]


def test_native_loops_are_their_twins(both):
    inner, halo = random_csr(300, 300, 1, share=0.2), random_csr(300, 90, 2)
    reads, out = halo.indptr.diff() > 0, kernels.transpose(halo)[0]
    ids, halo_ids = torch.randint(2**60, (300,)), torch.randint(2**60, (90,))
    for kind, rate in [("plain", 0.1), ("steep", 0.5), ("zeros", 0.4), ("tied", 0.9)]:
        value, halo_value = kernels.floored(some_values(kind, 300, 3), some_values(kind, 90, 4))
        budget = rate * (inner.indptr.diff() + halo.indptr.diff()).double()
        budget[::10] = torch.inf
        alone = both(kernels.fill_levels, inner, None, value, None, budget / 2)
        torch.testing.assert_close(*alone, rtol=1e-12, atol=0)
        level, of_twin = both(kernels.fill_levels, inner, halo, value, halo_value, budget)
        torch.testing.assert_close(level, of_twin, rtol=1e-12, atol=0)
        assert torch.equal(*both(kernels.edge_probability, inner, WaterFilling(level, value)))
        assert torch.equal(*both(kernels.edge_probability, out, WaterFilling(level, halo_value), transposed=True))
        draws = [
            (inner, level, value, (ids, ids)),
            (halo.compact(), level[reads], halo_value, (ids[reads], halo_ids)),
            (out, level, halo_value, (halo_ids, ids)),
        ]
        for coupled, dtype in [(False, torch.float32), (True, torch.float32), (False, torch.float64)]:
            chances = both(kernels.inclusion, out, WaterFilling(level, halo_value, coupled))
            torch.testing.assert_close(*chances, rtol=1e-12, atol=1e-300)
            for csr, its_level, its_value, its_ids in draws:
                options = {"transposed": csr is out, "dtype": dtype, "with_edges": True}
                drawn = WaterFilling(its_level, its_value, coupled)
                results = both(kernels.draw_weighted, 2**63 + 9, csr, drawn, its_ids, **options)
                (got, *rest), (want, *want_rest) = results
                assert torch.equal(got.indptr, want.indptr)
                assert torch.equal(got.indices, want.indices)
                assert all(torch.equal(one, other) for one, other in zip(rest, want_rest, strict=True))
                assert (got.num_cols, rest[0].dtype) == (csr.num_cols, dtype)
                assert got.targets is want.targets is csr.targets


@pytest.mark.usefixtures("each")
def test_inclusion_of_the_unlikely_and_of_the_certain():
    out = Csr(torch.tensor([0, 3, 3, 5]), torch.tensor([0, 1, 1, 1, 2], dtype=torch.int32), 3)
    level, value = torch.tensor([1.0, 2.0, torch.inf]).double(), torch.tensor([1e-25, 1.0, 0.1]).double()
    apart, coupled = (kernels.inclusion(out, WaterFilling(level, value, together)) for together in (False, True))
    torch.testing.assert_close(apart, torch.tensor([5e-25, 0, 1]).double())
    torch.testing.assert_close(coupled, torch.tensor([2e-25, 0, 1]).double())


def test_results_do_not_depend_on_the_number_of_threads():
    inner, halo = random_csr(500, 500, 1), random_csr(500, 200, 2)
    value, halo_value = kernels.floored(some_values("steep", 500), some_values("steep", 200))
    ids, out, budget = torch.arange(500), kernels.transpose(inner)[0], inner.indptr.diff() * 0.3
    results = []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        level = kernels.fill_levels(inner, halo, value, halo_value, budget)
        filling = WaterFilling(level, value)
        kept, weights, numbers = kernels.draw_weighted(6, inner, filling, (ids, ids), with_edges=True)
        p, chance = kernels.edge_probability(inner, filling), kernels.inclusion(out, filling)
        results.append([level, kept.indptr, kept.indices, weights, numbers, p, chance])
    for result in results[1:]:
        assert all(torch.equal(one, other) for one, other in zip(results[0], result, strict=True))


@pytest.mark.usefixtures("each")
def test_long_rows_and_empty_patterns():
    long = Csr(torch.tensor([0, 5000, 5000]), torch.arange(5000, dtype=torch.int32), 5000)
    value, ids = some_values("plain", 5000), torch.arange(5000)
    level = kernels.fill_levels(long, None, value, None, torch.tensor([250.0, 1.0]))
    filling = WaterFilling(level, value)
    assert abs(float(kernels.edge_probability(long, filling).sum()) - 250) < 1e-9
    assert 190 < kernels.draw_weighted(1, long, filling, (ids[:2], ids))[0].num_edges < 310
    for rows in (0, 4):
        empty, zeros = Csr(torch.zeros(rows + 1, dtype=torch.long), long.indices[:0], 5), torch.zeros(rows)
        assert kernels.fill_levels(empty, empty, value[:5], value[:5], zeros).tolist() == [0] * rows
        assert kernels.edge_probability(empty, WaterFilling(zeros, value[:5])).shape == (0,)
        assert kernels.inclusion(empty, WaterFilling(value[:5], value[:rows])).tolist() == [0] * rows
        kept, weights, _ = kernels.draw_weighted(1, empty, WaterFilling(zeros, value[:5]), (ids[:rows], ids[:5]))
        assert (kept.num_rows, kept.num_edges, len(weights)) == (rows, 0, 0)


def test_what_cannot_be_drawn_is_refused():
    csr, one = random_csr(6, 6, share=0.5), torch.ones(6, dtype=torch.float64)
    for bad in (torch.nan, torch.inf, 0.0, -1.0):
        wrong = torch.where(torch.arange(6) == 2, bad, one)
        with pytest.raises(InputError, match=r"halo_value must be finite and above 0.*kernels\.floored"):
            kernels.fill_levels(csr, csr, one, wrong, one)
    for bad in (torch.nan, torch.inf, -1.0):
        with pytest.raises(InputError, match="scores of sources must be finite"):
            kernels.floored(one, one * bad)
    for bad in (torch.nan, -1.0):
        with pytest.raises(InputError, match="level must be at least 0"):
            kernels.draw_weighted(1, csr, WaterFilling(one * bad, one), (one, one))
        with pytest.raises(InputError, match="budget must be at least 0"):
            kernels.fill_levels(csr, None, one, None, one * bad)
    with pytest.raises(InputError, match="together"):
        kernels.fill_levels(csr, csr, one, None, one)
    with pytest.raises(InputError, match="the same rows"):
        kernels.fill_levels(csr, random_csr(5, 6), one, one, one)
    with pytest.raises(InputError, match=r"value has the shape \(6,\)"):
        kernels.edge_probability(random_csr(6, 5), WaterFilling(one, one))
    with pytest.raises(InputError, match="float32 or float64"):
        kernels.draw_weighted(1, csr, WaterFilling(one, one), (one, one), dtype=torch.bfloat16)
