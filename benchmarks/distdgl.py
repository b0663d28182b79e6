"""DistDGL and Isthmus side by side: two machines that are network namespaces of this one (needs root).

    python benchmarks/distdgl.py --dgl PYTHON [--graph synthetic:products@0.15] [--link 10gbit] [--turns 2]

PYTHON has DGL 2.1.0 (docs/minibatch.md says how to install it). Both train a 3-layer SAGE of width 128 with fanout
15,10,5 and 1000 seed nodes for each of two trainers, one thread each, over the same links, on METIS parts with balanced
edges and training nodes; they take turns. DistDGL runs a server and a trainer on each machine. Rows of the other
machine's nodes always cross the link. Seeds per second are those of both trainers, of all epochs but the first,
evaluation left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import numpy as np

from isthmus.graph import load
from isthmus.partition import Book, partition
from isthmus.testbed import Testbed

PEER = Path(__file__).parent / "distdgl_peer.py"
TOGETHER = ["--batch", "together"]
OURS: dict[str, list[str]] = {  # the recipe, with what is set, and options
    "distdgl": [],
    "bytegnn": [],
    "bytegnn scheduler=fifo": [],
    "few-rows": [],
    "distdgl precision=bf16": [],
    "distdgl precision=bf16 draw=labor": [],
    "distdgl, together": TOGETHER,
    "distdgl precision=bf16, together": TOGETHER,
    "distdgl precision=bf16 draw=labor, together": TOGETHER,
}
PORT = 30050  # of DGL's servers, on hosts of our own
MACHINE = """
mount -t tmpfs -o size=8g tmpfs /dev/shm
DGL_ROLE=server RANK=0 "$@" > "$LOGS/server$RANK.log" 2>&1 & server=$!
DGL_ROLE=client "$@" > "$LOGS/client$RANK.log" 2>&1 & client=$!
trap 'kill $server $client 2> /dev/null' EXIT
trap 'exit 143' TERM INT
wait $client; status=$?
sleep 1; exit $status
"""  # a server and a trainer, which share the memory of their machine, and end with this shell


class DistDgl:
    """DistDGL's side: exported and cut once, then servers and trainers for every turn."""

    def __init__(self, python: str, graph: str, folder: Path):
        self.python, self.folder, file = python, folder, folder / "graph.npz"
        if not file.exists():
            loaded = load(graph)
            arrays = {"indptr": loaded.indptr, "indices": loaded.indices, "x": np.asarray(loaded.x, np.float32)}
            np.savez(file, **arrays, y=loaded.y.astype(np.int64), train=loaded.train_mask[:, 0])
        with np.load(file) as stored:
            self.classes = int(stored["y"].max()) + 1
        if not (folder / "parts").exists():
            subprocess.run([python, str(PEER), "part", str(folder)], env=self._environ({}), check=True)

    def train(self, testbed: Testbed, asked: argparse.Namespace) -> float:
        """Return the seeds per second of both trainers."""
        (self.folder / "ip_config.txt").write_text("".join(f"{host.address} {PORT}\n" for host in testbed.hosts))
        task = ["train", asked.fanout, asked.batch, asked.hidden, asked.epochs, self.classes]
        argv = ["unshare", "-m", "sh", "-c", MACHINE, "sh", self.python, str(PEER), *map(str, task)]
        machines = [
            subprocess.Popen(host.command(argv), env=self._environ(self._place(testbed, rank) | host.environ))
            for rank, host in enumerate(testbed.hosts)
        ]
        try:
            if max(machine.wait(900) for machine in machines):
                raise SystemExit(f"DistDGL failed: see the logs in {self.folder}")
        finally:
            for machine in machines:
                machine.terminate()
        seeds, seconds = 0, 0.0
        for rank in range(2):
            log = (self.folder / f"client{rank}.log").read_text()
            epochs = [json.loads(line) for line in log.splitlines() if line.startswith("{")][1:]
            seeds += sum(epoch["seeds"] for epoch in epochs)
            seconds = max(seconds, sum(epoch["seconds"] for epoch in epochs))
        return seeds / seconds

    def _place(self, testbed: Testbed, rank: int) -> dict[str, str]:
        return {
            **{"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": testbed.hosts[0].address, "MASTER_PORT": "29511"},
            **{"DGL_SERVER_ID": str(rank), "DGL_NUM_SERVER": "1", "DGL_NUM_CLIENT": "2", "DGL_NUM_SAMPLER": "0"},
            **{"DGL_DIST_MODE": "distributed", "DGL_GRAPH_FORMAT": "csc", "DGL_KEEP_ALIVE": "0"},
            "DGL_CONF_PATH": str(self.folder / "parts" / "graph.json"),
            "DGL_IP_CONFIG": str(self.folder / "ip_config.txt"),
            "LOGS": str(self.folder),
        }

    def _environ(self, place: dict[str, str]) -> dict[str, str]:
        return {**os.environ, "DGLBACKEND": "pytorch", "OMP_NUM_THREADS": "1", **place}


def ours(book: Book, name: str, asked: argparse.Namespace, out: Path) -> float:
    """Return the seeds per second of both workers of `isthmus train`."""
    recipe, *settings = name.removesuffix(", together").split()
    own = [*OURS[name], *(word for one in settings for word in ("--set", one))]
    size, train = 2 * asked.batch, book.train[0]
    isthmus = Path(sys.executable).parent / "isthmus"
    argv = [
        *(isthmus, "testbed", "--hosts", 2, "--link", asked.link, "--"),
        *(isthmus, "train", book.folder, "--recipe", recipe, *own, "--threads", 1, "--out", out, "--quiet"),
        *("--model", "sage", "--layers", 3, "--hidden", asked.hidden, "--dropout", 0, "--lr", 0.003),
        *("--batch-size", size, "--fanout", asked.fanout, "--rows", "owner"),
        *("--epochs", asked.epochs, "--eval-every", 10**6),
    ]
    subprocess.run([str(word) for word in argv], check=True, stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    epoch = -(-train // size)
    return train * (asked.epochs - 1) / sum(line["seconds"] for line in lines[epoch:])


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--dgl", metavar="PYTHON", help="an interpreter with DGL 2.1.0; without it Isthmus runs alone")
    options.add_argument("--graph", default="synthetic:products@0.15")
    options.add_argument("--link", default="10gbit")
    options.add_argument("--turns", type=int, default=2)
    options.add_argument("--epochs", type=int, default=3)
    options.add_argument("--batch", type=int, default=1000, help="seed nodes of each trainer")
    options.add_argument("--fanout", default="15,10,5")
    options.add_argument("--hidden", type=int, default=128)
    options.add_argument("--only", help="some of the runs of Isthmus by name, between semicolons")
    options.add_argument("--keep", type=Path, help="a folder for parts and logs, used again if it has them")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = asked.keep or Path(scratch)
        folder.mkdir(exist_ok=True)
        if not (folder / "ours").exists():
            partition(load(asked.graph), 2, out=folder / "ours")
        book, peer = Book.read(folder / "ours"), DistDgl(asked.dgl, asked.graph, folder) if asked.dgl else None
        found: dict[str, list[float]] = {}
        for turn in range(asked.turns):
            if peer is not None:
                with Testbed(2, asked.link) as testbed:
                    found.setdefault("DistDGL", []).append(peer.train(testbed, asked))
            for name in [one for one in OURS if not asked.only or one in asked.only.split(";")]:
                found.setdefault(name, []).append(ours(book, name, asked, Path(scratch) / f"{turn}-{name}"))
    print(f"{asked.graph}, 2 machines, links of {asked.link}, 2 × {asked.batch} seeds\n")
    print("| | seeds/s | of turns | × DistDGL |\n|---|---|---|---|")
    for name, speeds in found.items():
        ratio = f"{median(speeds) / median(found['DistDGL']):.2f}" if "DistDGL" in found else ""
        print(f"| {name} | {median(speeds):,.0f} | {', '.join(f'{one:,.0f}' for one in speeds)} | {ratio} |")


if __name__ == "__main__":
    main()
