"""All runs of some papers: each once, whatever number of tables shows it, those of one graph together."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

from isthmus.errors import InputError, WorkerError
from isthmus.partition import Book
from isthmus.recipes.parse import read_entries
from papers import measure
from papers.beds import BEDS, WORKERS, Bed, Size
from papers.table import CUT, LEARNT, LINKED, QUANTITIES, Figures, Key, Paper

VANILLA, METIS = "vanilla", "metis"
Needs = dict[str, dict[str, dict[str, list[str]]]]  # graph → cut → source → entries


@dataclass
class Results:
    """What was measured, and on what."""

    size: Size
    figures: dict[Key, Figures] = field(default_factory=dict)
    books: dict[tuple[str, str], Book] = field(default_factory=dict)  # by graph and cut
    links: dict[str, measure.Narrow] = field(default_factory=dict)  # by graph
    failed: list[str] = field(default_factory=list)
    seconds: float = 0.0
    added: bool = False
    """Whether some runs were added to those of an earlier page."""


@dataclass(frozen=True)
class Before:
    """The figures of pages that were written before on this machine, to which runs are added."""

    figures: Mapping[Key, Figures] = field(default_factory=dict)
    links: Mapping[str, measure.Narrow] = field(default_factory=dict)

    def lacks(self, papers: Iterable[Paper], size: Size) -> set[tuple[Key, str]]:
        """Return the runs, as (key, source), of which a table asks for a figure that is not here."""
        found = set()
        for table in (table for paper in papers for table in paper.tables):
            graphs = [graph for graph in table.graphs if size.graphs is None or graph in size.graphs]
            for row, graph in ((row, graph) for row in table.rows for graph in graphs if row.entry is not None):
                key = graph, row.cut, row.entry or ""
                for quantity in (column.quantity for column in table.columns):
                    parts = ("step", "score") if quantity == "converge" else (row.of + quantity,)
                    if not set(parts) <= self.figures.get(key, {}).keys():
                        found |= {(key, source) for source in QUANTITIES[quantity].sources}
        return found

    def in_its_unit(self, found: Figures, graph: str, cut: str, vanilla: Figures) -> Figures:
        """Return new figures of a run, with times as they were then: in the unit of ``vanilla``, which ran again."""
        unit = self.figures.get((graph, cut, VANILLA), vanilla)["step"] / vanilla["step"]
        times = {name for name in found if name in QUANTITIES and QUANTITIES[name].unit == "seconds"}
        return {name: unit * figure if name in times else figure for name, figure in found.items()}


def needed(papers: Iterable[Paper], size: Size) -> Needs:
    """Every run that the tables ask for, once; `vanilla` comes first, since it is the unit of the others."""
    found: Needs = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for paper in papers:
        for table in paper.tables:
            for (graph, cut, entry), source in table.needs(size.graphs):
                entries = found[graph][cut][source]
                if source != CUT and not entries and not measure.is_vertex_cut(cut):
                    entries.append(VANILLA)
                if entry not in entries:
                    entries.append(entry)
    return found


@dataclass
class Bench:
    size: Size
    work: Path  # parts and runs
    tell: measure.Tell
    known: Mapping[Key, Figures] = field(default_factory=dict)
    """Of earlier trainings (`page.learnt_before`), which are not repeated."""
    rates: Mapping[str, float] = field(default_factory=dict)
    """Of links that are known already (`page.links_before`), in bits per second, by graph."""
    before: Before | None = None
    """Pages to which only the runs that they lack are added."""

    def run(self, papers: Iterable[Paper]) -> Results:
        begun, before = time.monotonic(), self.before or Before()
        results = Results(self.size, dict(before.figures), links=dict(before.links), added=self.before is not None)
        torch.set_num_threads(1)
        for graph, cuts in self.left(needed(papers, self.size), papers).items():
            for cut in sorted(cuts, key=lambda cut: cut != METIS):  # first: the links are chosen on it
                self.measure(BEDS[graph], cut, cuts[cut], results)
        results.seconds = time.monotonic() - begun
        return results

    def left(self, needs: Needs, papers: Iterable[Paper]) -> Needs:
        """Return the runs that an earlier page lacks, with `vanilla` as their unit."""
        if self.before is None:
            return needs
        lacks = self.before.lacks(papers, self.size)
        found: Needs = defaultdict(lambda: defaultdict(dict))
        for graph, cut, source, entries in (
            (graph, cut, *each)
            for graph, cuts in needs.items()
            for cut, asked in cuts.items()
            for each in asked.items()
        ):
            new = [entry for entry in entries if ((graph, cut, entry), source) in lacks]
            found[graph][cut][source] = [e for e in entries if e in new or e == VANILLA] if new else []
        return found

    def measure(self, bed: Bed, cut: str, asked: dict[str, list[str]], results: Results) -> None:
        """Everything about one cut of one graph."""
        book = measure.parts(bed.source(self.size), cut, WORKERS, self.work / bed.name / cut)
        results.books[bed.name, cut] = book
        self.tell(f"{book.name}, {cut}: {book.nodes:,} nodes, {book.edges:,} edges")
        figures = {
            entry: dict(results.figures.get((bed.name, cut, entry), {})) | measure.of_cut(book)
            for entries in asked.values()
            for entry in entries
        }
        if asked.get(LINKED):
            self.over_links(bed, book, asked[LINKED], figures, results)
        if asked.get(LEARNT):
            self.learn(bed, book, asked[LEARNT], figures, results)
        results.figures |= {(bed.name, cut, entry): found for entry, found in figures.items()}

    def over_links(
        self, bed: Bed, book: Book, asked: list[str], figures: dict[str, dict[str, float]], results: Results
    ) -> None:
        """Times."""
        steps, work = bed.steps_over_links(self.size), book.folder.parent
        setting = measure.Setting(book, bed.config(steps, steps), bed.hosts)
        if bed.name not in results.links:
            known = self.rates.get(bed.name)
            results.links[bed.name] = measure.calibrate(setting, work / "links", self.tell, known)
        rate, runs = results.links[bed.name].rate, work / f"{book.folder.name}-runs"
        found = measure.fastest(setting, read_entries("; ".join(asked)), rate, runs, self.tell)
        for entry in (entry for entry in asked if entry in found):
            mine = found[entry]
            if self.before is not None:
                mine = self.before.in_its_unit(mine, bed.name, book.folder.name, found[VANILLA])
            figures[entry] = dict(mine) | figures[entry]  # what the page has had before stays
            figures[entry]["epoch"] = figures[entry]["step"] * measure.steps_per_epoch(book, entry)
        results.failed += [f"{book.name}, over links: {entry}" for entry in asked if entry not in found]

    def learn(
        self, bed: Bed, book: Book, asked: list[str], figures: dict[str, dict[str, float]], results: Results
    ) -> None:
        """Scores, bytes, and with the times over links the time to converge."""
        config = bed.config(bed.learning_steps(self.size), self.size.eval_every)
        base: list[tuple[int, float]] = []
        for place, entry in enumerate(read_entries("; ".join(asked)), 1):
            begun, title, mine = time.monotonic(), f"learning {place}/{len(asked)} {entry.label}", figures[entry.label]
            if (known := self.known.get((bed.name, book.folder.name, entry.label))) is not None:
                mine |= {name: figure for name, figure in known.items() if name != "steps"}
                if "steps" in known and "step" in mine:
                    mine["converge"] = known["steps"] * mine["step"]
                continue
            try:
                learnt = measure.learn(book, entry, config)
            except (InputError, WorkerError) as error:
                results.failed.append(f"{book.name}: {entry.label}: {error}")
                self.tell(f"{title}: failed: {error}")
                continue
            if entry.label == VANILLA:
                base = learnt.curve
            figures[entry.label] = mine = dict(learnt.figures) | mine
            steps = measure.steps_to(learnt.curve, base) if base else None
            if steps is not None and "step" in mine:
                mine["converge"] = steps * mine["step"]
            self.tell(f"{title}: {mine['score']:.2f} in {time.monotonic() - begun:.0f} s")
