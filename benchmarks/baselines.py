"""Accuracy of the sampling baselines beside full-graph training: a table that fills up run by run.

Every run is a line of a file; runs that are there already are not repeated, so it can be stopped and goes on.
One worker suffices: any number of workers has the same batches and losses.

    python benchmarks/baselines.py --out baselines.jsonl [--graphs reddit@0.1,products@0.05,yelp@0.05] [--steps 300]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import torch

import isthmus
from isthmus.comm import Hub
from isthmus.engine import TrainConfig, train
from isthmus.nn import ModelConfig
from isthmus.partition import Book, partition
from isthmus.recipes import find

ROWS: dict[str, tuple[str, dict]] = {
    "full-graph": ("exact", {}),
    "graphsage": ("graphsage", {}),
    "vr-gcn": ("vr-gcn", {}),
    "fastgcn": ("fastgcn", {}),
    "ladies": ("ladies", {}),
    "cluster-gcn": ("cluster-gcn", {}),
    "graphsaint node": ("graphsaint", {"kind": "node"}),
    "graphsaint edge": ("graphsaint", {"kind": "edge"}),
    "graphsaint walk": ("graphsaint", {"kind": "walk"}),
}
"""A name, the recipe and its options."""
SEEDS = 512
BUDGETS: dict[str, dict[str, tuple[int, dict]]] = {
    "reddit": {
        "cluster-gcn": (3100, {}),
        "graphsaint node": (8000, {}),
        "graphsaint edge": (6000, {}),
        "graphsaint walk": (2000, {"length": 4}),
    },
    "products": {
        "cluster-gcn": (5200, {}),
        "graphsaint node": (4000, {}),
        "graphsaint edge": (2000, {}),
        "graphsaint walk": (1000, {"length": 3}),
    },
    "yelp": {
        "cluster-gcn": (3100, {}),
        "graphsaint node": (5000, {}),
        "graphsaint edge": (2500, {}),
        "graphsaint walk": (1250, {"length": 2}),
    },
}
"""--batch-size, and what else is set, of methods whose batches are no seed nodes.

Those of GraphSAINT are its authors' for Reddit and Yelp; for products OGB's 20,000 walks at a twentieth of its
nodes, and nodes and edges that meet about as many. Clusters: 20 of 1,500 as its paper's Reddit, 32 of OGB's 15,000.
"""


def run(graph: str, name: str, seed: int, asked: argparse.Namespace) -> dict:
    """Train once, and return the line of it."""
    folder = Path(asked.parts) / graph.replace("@", "-")
    if not folder.exists():
        partition(isthmus.load(f"synthetic:{graph}"), 1, out=folder)
    recipe, options = ROWS[name]
    size, more = BUDGETS[graph.split("@")[0]].get(name, (SEEDS, {}))
    shape = ModelConfig(model="sage", layers=2, hidden=asked.hidden, dropout=0.5)
    config = TrainConfig(
        shape,
        recipe=recipe,
        steps=asked.steps,
        eval_every=max(asked.steps // 6, 1),
        seed=seed,
        batch_size=None if recipe == "exact" else size,
    )
    book, policy, begun = Book.read(folder), find(recipe).policy({**options, **more}), time.perf_counter()
    found = Hub(1, timeout=3600).run(lambda transport: train(book, config, transport, policy=policy))[0].summary
    return {
        "graph": graph, "name": name, "seed": seed, "steps": asked.steps, "hidden": asked.hidden,
        "test": found["test"]["score"], "val": found["best_val"], "seconds": time.perf_counter() - begun,
    }  # fmt: skip


def table(lines: list[dict], graphs: list[str]) -> str:
    """Return the table in markdown: the mean test score of every row, in percent, with its standard error."""
    text = [f"| | {' | '.join(graphs)} |", "|---" * (len(graphs) + 1) + "|"]
    for name in ROWS:
        cells = []
        for graph in graphs:
            scores = [100 * line["test"] for line in lines if (line["graph"], line["name"]) == (graph, name)]
            error = statistics.stdev(scores) / len(scores) ** 0.5 if len(scores) > 1 else float("nan")
            cells.append(f"{statistics.mean(scores):.2f} ± {error:.2f} ({len(scores)})" if scores else "–")
        text.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="build/baselines.jsonl")
    parser.add_argument("--parts", default="build/baselines-parts")
    parser.add_argument("--graphs", default="reddit@0.1,products@0.05,yelp@0.05")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    out, graphs = Path(asked.out), asked.graphs.split(",")
    out.parent.mkdir(parents=True, exist_ok=True)
    same = {"steps": asked.steps, "hidden": asked.hidden}
    read = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    lines = [line for line in read if same.items() <= line.items()]
    done = {(line["graph"], line["name"], line["seed"]) for line in lines}
    for seed in range(asked.seeds):
        for graph in graphs:
            for name in ROWS:
                if (graph, name, seed) not in done:
                    lines.append(run(graph, name, seed, asked))
                    with out.open("a") as file:
                        file.write(json.dumps(lines[-1]) + "\n")
    print(table(lines, graphs))


if __name__ == "__main__":
    main()
