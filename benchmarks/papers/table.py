"""A published table as data, and how one of its figures relates to a base: ours and theirs, in the same way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

Published = float | tuple[float, float] | None  # a figure, a range of figures, or none
Figures = Mapping[str, float]  # by quantity
Key = tuple[str, str, str]  # graph, cut, entry

LINKED, LEARNT, CUT = "linked", "learnt", "cut"  # where a quantity comes from: runs over links, runs without, the book

THIRDS = ("first", "middle", "last")


@dataclass(frozen=True)
class Quantity:
    unit: str
    sources: tuple[str, ...]


QUANTITIES = {
    "step": Quantity("seconds", (LINKED,)),  # medians, these four
    "compute": Quantity("seconds", (LINKED,)),
    "wait": Quantity("seconds", (LINKED,)),
    "reduce": Quantity("seconds", (LINKED,)),
    "mean_step": Quantity("seconds", (LINKED,)),  # for recipes whose steps differ
    "mean_compute": Quantity("seconds", (LINKED,)),
    "mean_wait": Quantity("seconds", (LINKED,)),
    "wait_share": Quantity("percent", (LINKED,)),
    "epoch": Quantity("seconds", (LINKED,)),  # median step, times the steps of a pass over the training nodes
    "sample_share": Quantity("percent", (LINKED,)),  # of a step spent drawing
    "memory": Quantity("bytes", (LINKED,)),  # of all workers, above what an idle one holds
    "hit_rate": Quantity("percent", (LINKED,)),
    "score": Quantity("percent", (LEARNT,)),
    "sent": Quantity("bytes", (LEARNT,)),  # rows of a mean step, all workers
    "rows": Quantity("count", (LEARNT,)),
    "converge": Quantity("seconds", (LINKED, LEARNT)),  # steps to 99 % of vanilla's score, times the median step
    "halo": Quantity("count", (CUT,)),
    "inner": Quantity("count", (CUT,)),  # rows that the part with the most sends within its host, both legs
    "outer": Quantity("count", (CUT,)),  # and to the other host
    "replication": Quantity("ratio", (CUT,)),
    "edges": Quantity("ratio", (CUT,)),  # of the fullest part, over the mean
    "inner_rows": Quantity("count", (LINKED,)),  # sent within hosts in a mean step, all workers
    "outer_rows": Quantity("count", (LINKED,)),  # and between them
    "outer_bytes": Quantity("bytes", (LINKED,)),
    **{f"{part} third": Quantity("ratio", (LEARNT,)) for part in THIRDS},  # of a training
}


@dataclass(frozen=True)
class Column:
    """``relation`` to the row's base: speed-up (base / row), share (row / base), points (row − base) or plain."""

    name: str
    quantity: str
    relation: str = "plain"
    published_ratio: bool = False  # the paper prints the relation itself, not the figure
    base: str | None = None  # of this column, where it is not the row's


@dataclass(frozen=True)
class Row:
    name: str  # as the paper writes it
    entry: str | None  # recipe and options; None: not done again, and the table says why
    published: Mapping[str, tuple[Published, ...]] = field(default_factory=dict)  # by graph, one for each column
    cut: str = "metis"
    base: str | None = None  # where it is not the table's
    of: str = ""  # what its quantities are about, where an entry has several rows


@dataclass(frozen=True)
class Table:
    name: str
    about: str
    base: str
    graphs: tuple[str, ...]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    why: str  # our figures differ from the published ones: paragraphs

    def row(self, name: str) -> Row:
        return next(row for row in self.rows if row.name == name)

    def base_of(self, row: Row, column: Column) -> Row:
        return self.row(column.base or row.base or self.base)

    def needs(self, graphs: tuple[str, ...] | None) -> Iterator[tuple[Key, str]]:
        """Every run that the table asks for, as (key, source)."""
        for graph in self.graphs if graphs is None else (g for g in self.graphs if g in graphs):
            for row in self.rows:
                for source in {s for column in self.columns for s in QUANTITIES[column.quantity].sources}:
                    if row.entry is not None:
                        yield (graph, row.cut, row.entry), source


@dataclass(frozen=True)
class Paper:
    """``name`` is also that of its page."""

    name: str
    title: str
    hardware: str
    tables: tuple[Table, ...]


@dataclass(frozen=True)
class Cell:
    """One figure: measured, as a relation to the base, and that relation as published."""

    measured: float | None
    ours: float | None
    published: Published

    def apart(self, relation: str) -> bool:
        """Whether ours is outside the published range by more than half a point, or a quarter."""
        if self.ours is None or self.published is None:
            return False
        low, high = self.published if isinstance(self.published, tuple) else (self.published, self.published)
        if relation == "points":
            return not low - 0.5 <= self.ours <= high + 0.5
        return not low / 1.25 <= self.ours <= high * 1.25


def relate(relation: str, figure: float | None, base: float | None) -> float | None:
    if figure is None or relation == "plain":
        return figure
    if base is None:
        return None
    if relation == "points":
        return figure - base
    above, below = (base, figure) if relation == "speed-up" else (figure, base)
    return above / below if below else None


def cell(table: Table, row: Row, column: Column, graph: str, measured: Mapping[Key, Figures]) -> Cell:
    base, place = table.base_of(row, column), table.columns.index(column)

    def ours(of: Row) -> float | None:
        return measured.get((graph, of.cut, of.entry or ""), {}).get(of.of + column.quantity)

    def theirs(of: Row) -> Published:
        return of.published[graph][place] if graph in of.published else None

    published = theirs(row)
    if not column.published_ratio and not isinstance(published, tuple):
        under = theirs(base)
        published = relate(column.relation, published, None if isinstance(under, tuple) else under)
    return Cell(ours(row), relate(column.relation, ours(row), ours(base)), published)
