"""The papers' tables, done again, with ours beside the published ratios (needs root: it makes narrow links).

    PYTHONPATH=benchmarks python -m papers [--only psc,bns,pipegcn,sancus,cdfgnn] [--tables "Table II,Table III"]
                                           [--size quick|minutes|large] [--quick] [--out docs/results] [--work DIR]
                                           [--learnt FOLDER] [--new-links] [--add]

Writes a page and its numbers for each paper. --quick shows in two minutes that it works; its figures mean nothing.
--learnt takes scores, bytes and steps to converge, which no link changes, from what an earlier run of the same code
wrote there, and measures only times. Links are those of the run before in --out, if it was on this machine: two runs
measure the same thing then. --new-links chooses them anew. --add runs only what the pages in --out lack, beside
`vanilla`, and adds it to them.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

from isthmus.errors import InputError, WorkerError
from isthmus.testbed import tools
from papers.beds import SIZES
from papers.bns import BNS
from papers.cdfgnn import CDFGNN
from papers.page import figures_before, learnt_before, links_before, write
from papers.pipegcn import PIPEGCN
from papers.psc import PSC
from papers.run import Bench
from papers.sancus import SANCUS
from papers.table import Paper

PAPERS = {"psc": PSC, "bns": BNS, "pipegcn": PIPEGCN, "sancus": SANCUS, "cdfgnn": CDFGNN}


def chosen(only: str | None, tables: str | None) -> list[Paper]:
    """The papers asked for, with the tables asked for."""
    names = [name.strip() for name in only.split(",")] if only else list(PAPERS)
    for name in names:
        if name not in PAPERS:
            raise InputError(f"no tables of {name!r}: --only takes {', '.join(PAPERS)}")
    papers = [PAPERS[name] for name in names]
    if tables is None:
        return papers
    wanted = [name.strip() for name in tables.split(",")]
    known = [table.name for paper in papers for table in paper.tables]
    for name in wanted:
        if name not in known:
            raise InputError(f"no table {name!r}: --tables takes {', '.join(known)}")
    kept = [replace(p, tables=tuple(table for table in p.tables if table.name in wanted)) for p in papers]
    return [paper for paper in kept if paper.tables]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="papers, by commas: " + ", ".join(PAPERS))
    parser.add_argument("--tables", help="tables, by commas; default: all of those papers")
    parser.add_argument("--size", choices=SIZES, default="minutes")
    parser.add_argument("--quick", action="store_const", dest="size", const="quick", help="the same as --size quick")
    parser.add_argument("--out", type=Path, help="default: docs/results; runs/papers for --quick")
    parser.add_argument("--work", type=Path, help="a new or empty folder to keep parts and runs in; default: temporary")
    parser.add_argument("--learnt", type=Path, help="folder of an earlier run, whose scores are taken")
    parser.add_argument("--new-links", action="store_true", help="choose links anew, whatever an earlier run chose")
    parser.add_argument("--add", action="store_true", help="run only what the pages in --out lack, and add it")
    options = parser.parse_args()
    papers = chosen(options.only, options.tables)
    tools.check()  # before minutes of work
    out = options.out or Path("runs/papers" if options.size == "quick" else "docs/results")
    keep = nullcontext(options.work) if options.work else tempfile.TemporaryDirectory(prefix="isthmus-papers-")
    with keep as work:
        known = learnt_before(options.learnt, papers, options.size) if options.learnt else {}
        rates = {} if options.new_links else links_before(out, papers, options.size)
        tell = partial(print, file=sys.stderr, flush=True)
        before = figures_before(out, papers, options.size) if options.add else None
        bench = Bench(SIZES[options.size], Path(work), tell, known, rates, before)
        results = bench.run(papers)
    asked = {name: getattr(options, name) for name in ("only", "tables", "size")}
    command = shlex.join(["python", "-m", "papers", *(f"--{name}={value}" for name, value in asked.items() if value)])
    for paper in papers:
        path = write(paper, results, command, out)
        print(f"{path.read_text()}\nwrote {path}", flush=True)
    print(f"{results.seconds / 60:.1f} minutes", file=sys.stderr)
    if results.failed:
        sys.exit(3)


if __name__ == "__main__":
    try:
        main()
    except (InputError, WorkerError) as error:
        sys.exit(f"papers: {error}")
