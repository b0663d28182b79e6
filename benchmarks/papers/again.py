"""Whether two runs of the papers' tables agree: the same ratios, and methods in the same order.

    PYTHONPATH=benchmarks python -m papers.again ONE OTHER

ONE and OTHER are folders that `python -m papers --out` wrote. Two ratios agree if they are at most 15 % apart; two
methods have changed places if each was ahead of the other once, and once by more than that.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from papers.__main__ import PAPERS
from papers.table import Paper

APART = 1.15
Ratios = dict[str, dict[str, float]]  # by column ("reddit, Table III, step"), by method


class Agreement(NamedTuple):
    ratios: int
    apart: list[str]
    """Ratios that differ, in words."""
    swapped: list[str]


def ratios(paper: Paper, folder: Path) -> Ratios:
    """The ratios of all tables (speed-ups and shares; not points, nor plain figures) in the page's JSON."""
    relations = {(table.name, c.name): c.relation for table in paper.tables for c in table.columns}
    found: Ratios = {}
    for table in json.loads((folder / f"{paper.name}.json").read_text())["tables"]:
        name, base = table["table"], table["base"]
        for method, row in table["rows"].items():
            for column, cell in row.items():
                if relations[name, column] in ("speed-up", "share") and method != base and cell["ours"]:
                    found.setdefault(f"{table['graph']}, {name}, {column}", {})[method] = cell["ours"]
    return found


def agreement(one: Ratios, other: Ratios) -> Agreement:
    """Of the methods that both runs have a ratio of."""
    pairs = [(column, *pair) for column, by_method in one.items() for pair in _both(by_method, other.get(column, {}))]
    far = [
        f"{column}, {method}: {first:.2f} and {second:.2f}"
        for column, method, first, second in pairs
        if max(first, second) > APART * min(first, second)
    ]
    return Agreement(len(pairs), far, [said for column in one for said in _swapped(column, one, other)])


def _both(one: Mapping[str, float], other: Mapping[str, float]) -> Iterator[tuple[str, float, float]]:
    return ((method, figure, other[method]) for method, figure in one.items() if method in other)


def _swapped(column: str, one: Ratios, other: Ratios) -> Iterator[str]:
    for (a, a_one, a_other), (b, b_one, b_other) in combinations(_both(one[column], other.get(column, {})), 2):
        before, after = a_one / b_one, a_other / b_other
        if (before - 1) * (after - 1) < 0 and max(before, 1 / before, after, 1 / after) > APART:
            yield f"{column}: {a} was {before:.2f} × {b}, then {after:.2f} ×"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("one", type=Path)
    parser.add_argument("other", type=Path)
    folders = parser.parse_args()
    for paper in PAPERS.values():
        if not all((folder / f"{paper.name}.json").exists() for folder in (folders.one, folders.other)):
            continue
        found = agreement(ratios(paper, folders.one), ratios(paper, folders.other))
        same = found.ratios - len(found.apart)
        print(f"{paper.title}: {same} of {found.ratios} ratios agree, {len(found.swapped)} pairs changed places")
        for line in (*found.apart, *found.swapped):
            print(f"  {line}")


if __name__ == "__main__":
    main()
