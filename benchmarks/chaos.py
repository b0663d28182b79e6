"""Kills workers at random moments of a run (SIGKILL), and compares its end with an undisturbed run's, bit for bit.

    python benchmarks/chaos.py --kills 20 --recipes exact,pipegcn
    python benchmarks/chaos.py --kills 20 --recipes distdgl --learnt  # batches made ahead, rows that nodes learn

A third of the kills come at any moment after the one before, so also while workers start and meet; the others when the
run has reached a random step. Needs Linux (/proc).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from isthmus.graph import load
from isthmus.partition import partition

FILES = ("model", "optimizer", "best")


@dataclass
class Chaos:
    """A run with its parts, its options, and what happened to it."""

    parts: Path
    out: Path
    steps: int
    options: list[str] = field(default_factory=list)
    timeout: float = 600.0
    workers: set[int] = field(default_factory=set)  # every process that was ever seen to be one
    said: str = ""
    status: int | None = None

    def undisturbed(self) -> Chaos:
        return self.disturbed(0, 0)

    def disturbed(self, kills: int, seed: int) -> Chaos:
        """Runs to the end while workers are killed."""
        draw = random.Random(seed)
        targets = sorted(draw.randrange(1, self.steps) for _ in range(kills))
        deadline = time.monotonic() + self.timeout
        with tempfile.TemporaryFile("w+") as words:
            run = subprocess.Popen(self._command(), stderr=words, stdout=subprocess.DEVNULL)
            try:
                for target in targets:
                    self._kill(run, target, draw, deadline)
                self.status = run.wait(max(0.1, deadline - time.monotonic()))
            finally:
                run.kill()
                run.wait()
                words.seek(0)
                self.said = words.read()
        return self

    @property
    def restarts(self) -> int:
        return self.said.count("starting again from step")

    @property
    def orphans(self) -> list[int]:
        return [pid for pid in self.workers if _alive(pid)]

    def losses(self) -> list[float]:
        return [json.loads(line)["loss"] for line in (self.out / "metrics.jsonl").read_text().splitlines()]

    def bits(self) -> dict[str, bytes]:
        """Return the weights, the optimizer's state, and the rows that nodes have learnt."""
        folder = self.out / "checkpoints" / f"step-{self.steps}"
        names = [*FILES, *(file.stem for file in sorted(folder.glob("rows-*")))]
        return {name: (folder / f"{name}.safetensors").read_bytes() for name in names}

    def _command(self) -> list[str]:
        run = [sys.executable, "-m", "isthmus", "train", str(self.parts), "--out", str(self.out), "--quiet"]
        return [*run, "--steps", str(self.steps), "--restarts", "100", *self.options]

    def _kill(self, run: subprocess.Popen, target: int, draw: random.Random, deadline: float) -> None:
        """Ends one worker, of those that have not yet been through a kill."""
        anywhere = draw.random() < 1 / 3
        pause = draw.uniform(0, 4.0 if anywhere else 0.03)
        before = frozenset(self.workers)
        while run.poll() is None and time.monotonic() < deadline:
            fresh = [pid for pid in _children(run.pid) if pid not in before]
            self.workers |= set(fresh)
            if fresh and (anywhere or self._reached() >= target):
                time.sleep(pause)
                fresh = [pid for pid in _children(run.pid) if pid not in before]
                if fresh:
                    os.kill(draw.choice(fresh), signal.SIGKILL)
                    self.workers |= set(fresh)
                    return
            time.sleep(0.01)

    def _reached(self) -> int:
        """The last step that the run has recorded."""
        file = self.out / "metrics.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        return len(lines)


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def _alive(pid: int) -> bool:
    try:
        return "isthmus.launch.worker" in Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--graph", default="synthetic:flickr@0.01")
    options.add_argument("--workers", type=int, default=3)
    options.add_argument("--parts", type=int, default=3)
    options.add_argument("--steps", type=int, default=200)
    options.add_argument("--kills", type=int, default=20)
    options.add_argument("--recipes", default="exact,pipegcn")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--learnt", action="store_true", help="take the features away, so that nodes learn rows")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="isthmus-chaos-") as scratch:
        folder = Path(scratch)
        graph = load(asked.graph)
        if asked.learnt:
            graph = replace(graph, x=np.empty((graph.num_nodes, 0), np.float32))
        parts = partition(graph, asked.parts, out=folder / "parts").folder
        well = True
        for recipe in asked.recipes.split(","):
            how = ["--recipe", recipe, "--workers", str(asked.workers), "--eval-every", "5", "--hidden", "16"]
            if asked.learnt:
                how += ["--batch-size", "50", "--fanout", "5,5", "--set", "embedding=16", "--set", "ahead=3"]
            calm = Chaos(parts, folder / f"{recipe}-calm", asked.steps, how).undisturbed()
            begun = time.monotonic()
            wild = Chaos(parts, folder / f"{recipe}-wild", asked.steps, how, 60.0 * (asked.kills + 5))
            wild.disturbed(asked.kills, asked.seed)
            time.sleep(1)
            same = calm.status == wild.status == 0 and calm.bits() == wild.bits() and calm.losses() == wild.losses()
            well &= same and not wild.orphans
            print(
                f"{recipe}: {asked.kills} kills asked, {wild.restarts} restarts, {time.monotonic() - begun:.0f} s, "
                f"status {wild.status}, orphans {len(wild.orphans)}, same bits: {'yes' if same else 'NO'}",
                flush=True,
            )
            if not same:
                print(wild.said)
    sys.exit(0 if well else 1)


if __name__ == "__main__":
    main()
