"""Products of independent cases: every pair of values in `make test`, the whole product in `make test-all`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, product
from typing import Any

import pytest


def pairwise(**axes: Sequence[Any]) -> tuple[list[str], list[Any]]:
    """Return the arguments of ``pytest.mark.parametrize`` for the product of the axes.

    Cases beyond a small set in which every pair of values of two axes meets are marked ``full``.

    >>> @pytest.mark.parametrize(*pairwise(bits=[2, 4, 8], width=[1, 64], model=["gcn", "sage"]))
    ... def test_rows(bits, width, model): ...
    """
    return _marked(axes, _covering([range(len(values)) for values in axes.values()], 2))


def each_value(**axes: Sequence[Any]) -> tuple[list[str], list[Any]]:
    """Do the same, but with only as many cases unmarked as meet every value: for axes that have little in common."""
    return _marked(axes, _covering([range(len(values)) for values in axes.values()], 1))


def _marked(axes: Mapping[str, Sequence[Any]], chosen: set[tuple[int, ...]]) -> tuple[list[str], list[Any]]:
    params = []
    for places in product(*(range(len(values)) for values in axes.values())):
        case = [values[at] for values, at in zip(axes.values(), places, strict=True)]
        marks = () if places in chosen else (pytest.mark.full,)
        params.append(pytest.param(*case, marks=marks, id="-".join(map(_id, case))))
    return list(axes), params


def _covering(axes: Sequence[range], together: int) -> set[tuple[int, ...]]:
    """Return cases in which every pair (or value) occurs, taking each time the one with the most that are new."""
    kinds = {case: [set(combinations(enumerate(case), size)) for size in (together, 2)] for case in product(*axes)}
    missing, unmet = (set().union(*sets) for sets in zip(*kinds.values(), strict=True))
    chosen = set()
    while missing:
        best = max(kinds, key=lambda case: (len(kinds[case][0] & missing), len(kinds[case][1] & unmet)))
        chosen.add(best)
        missing -= kinds[best][0]
        unmet -= kinds[best][1]
    return chosen


def _id(value: Any) -> str:
    return str(value).removeprefix("torch.")
