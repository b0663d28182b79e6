"""Products of cases: `make test` meets every pair of values, `make test-all` every combination."""

from __future__ import annotations

from itertools import combinations, product

from products import each_value, pairwise


def test_every_pair_is_met_and_the_whole_product_is_there():
    axes = {"bits": [2, 4, 8], "width": [1, 3, 7, 8], "given": [{"rate": 0.1}, {}]}
    names, params = pairwise(**axes)
    assert names == list(axes)
    assert [list(one.values) for one in params] == [list(case) for case in product(*axes.values())]
    quick = [one.values for one in params if not one.marks]
    assert len(quick) < 16 < len(params)
    for (i, first), (j, second) in combinations(enumerate(axes.values()), 2):
        for pair in product(first, second):
            assert any((case[i], case[j]) == pair for case in quick), pair
    assert all([mark.name for mark in one.marks] in ([], ["full"]) for one in params)


def test_every_value_is_met():
    _, params = each_value(name=["a", "b", "c"], norm=["gcn", "mean"])
    quick = [one.values for one in params if not one.marks]
    assert (len(quick), len(params)) == (3, 6)
    assert {name for name, _ in quick} == {"a", "b", "c"}
    assert {norm for _, norm in quick} == {"gcn", "mean"}
