"""ByteGNN against DistDGL, supervised and unsupervised, with GCN, SAGE and GAT: figure 17 of the survey.

Both recipes take turns on the same parts; a cell is the ratio of their seed nodes per second, the median of all turns.
Published for ogbn-products: 2.1–3.5 supervised, unsupervised 2.4 (SAGE) and 1.6 (GAT), with 8 machines of 56 cores.

    python benchmarks/figure_17.py [--graph products@0.02] [--workers 2] [--steps 15] [--turns 3]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

import isthmus
from isthmus.partition import partition

MODELS = {"gcn": {"hidden": 32}, "sage": {"hidden": 32}, "gat": {"hidden": 64, "heads": 4}}
LOSSES = {"supervised": None, "unsupervised": "skip-gram"}
RECIPES = ("distdgl", "bytegnn")


def seconds(parts: Path, recipe: str, model: str, loss: str | None, asked: argparse.Namespace) -> float:
    """Return the median seconds of a step."""
    with tempfile.TemporaryDirectory() as folder:
        found = isthmus.train(
            str(parts), recipe=recipe, model=model, loss=loss, out=f"{folder}/run", workers=asked.workers, threads=1,
            steps=asked.steps, eval_every=asked.steps, batch_size=asked.batch_size, fanout="15,10", quiet=True,
            **MODELS[model],
        )  # fmt: skip
        return statistics.median(line["seconds"] for line in found.metrics[2:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", default="products@0.02")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=1000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        parts = Path(folder) / "parts"
        partition(isthmus.load(f"synthetic:{asked.graph}"), asked.workers, out=parts)
        print(f"| {asked.graph}, {asked.workers} workers | {' | '.join(MODELS)} |")
        print("|---" * (len(MODELS) + 1) + "|")
        for name, loss in LOSSES.items():
            cells = []
            for model in MODELS:
                turns = [[seconds(parts, recipe, model, loss, asked) for recipe in RECIPES] for _ in range(asked.turns)]
                old, new = (statistics.median(column) for column in zip(*turns, strict=True))
                rates = " → ".join(f"{asked.batch_size / one:,.0f}" for one in (old, new))
                cells.append(f"{old / new:.2f} × ({rates} seeds/s)")
            print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
