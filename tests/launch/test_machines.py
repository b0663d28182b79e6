"""The commands of docs/machines.md, with every machine on loopback."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from graphs import community_graph, cut
from processes import free_port

PAGE = (Path(__file__).parents[2] / "docs" / "machines.md").read_text()
SHORT = "--hidden 8 --steps 4 --eval-every 2 --quiet --json"


def block(heading: str) -> str:
    """The first commands below a heading."""
    return re.search(rf"^## {heading}\n.*?```sh\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE)[1]


def summaries(said: str) -> list[dict]:
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")]


def test_torchrun_on_two_machines(tmp_path):
    cut(community_graph(), 4, "random", tmp_path).folder.rename(tmp_path / "parts")
    port, machines = str(free_port()), []
    (tmp_path / ".isthmus-secret").write_text("the same on both machines")
    variable, *lines = block("torchrun").splitlines()
    assert variable.startswith("export ISTHMUS_SECRET_FILE=$HOME/.isthmus-secret ")
    for line in lines:
        words = shlex.split(line.replace(" A ", " 127.0.0.1 ").replace("29500", port))
        assert words[0] == "torchrun"
        command = [sys.executable, "-m", "torch.distributed.run", *words[1:], *shlex.split(SHORT)]
        secret = {"ISTHMUS_SECRET_FILE": str(tmp_path / ".isthmus-secret")}
        environ = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", **secret}
        how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        machines.append(subprocess.Popen(command, cwd=tmp_path, env=environ, **how))
    results = [machine.communicate(timeout=180) for machine in machines]
    assert [machine.returncode for machine in machines] == [0, 0], results
    assert [[one["workers"] for one in summaries(said)] for said, _ in results] == [[4], []]


SRUN = """#!{python}
import os, subprocess, sys
words = sys.argv[1:]
assert words[0] == "--cpus-per-task" and words[2] == "isthmus"
if "STATUS" in os.environ:
    sys.exit(int(os.environ["STATUS"]))
step = {{"SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NODELIST": "localhost",
        "SLURM_STEP_ID": "0", "SLURM_CPUS_PER_TASK": words[1]}}
command = [sys.executable, "-m", *words[2:], *{short!r}.split()]
tasks = [subprocess.Popen(command, env={{**os.environ, **step, "SLURM_PROCID": str(k)}}) for k in range(2)]
sys.exit(max(task.wait() for task in tasks))
"""


@pytest.fixture
def slurm(tmp_path):
    """Runs the batch script of the docs as sbatch would, srun and scontrol being stand-ins."""
    tools, log = tmp_path / "tools", tmp_path / "log"
    tools.mkdir()
    (tools / "srun").write_text(SRUN.format(python=sys.executable, short=SHORT))
    (tools / "scontrol").write_text(f"#!/bin/sh\necho $@ >> {log}\n")
    for tool in tools.iterdir():
        tool.chmod(0o755)
    script = tmp_path / "job.sh"
    script.write_text(
        block("Slurm").replace("/shared", str(tmp_path)).replace("--cpus-per-task 8", "--cpus-per-task 1")
    )

    def run(**environ: str) -> tuple[subprocess.CompletedProcess, str]:
        path = f"{tools}:{os.environ['PATH']}"
        job = {"SLURM_JOB_ID": str(os.getpid()), "GLOO_SOCKET_IFNAME": "lo", "PATH": path, **environ}
        done = subprocess.run(
            ["sh", str(script)], env={**os.environ, **job}, capture_output=True, text=True, timeout=180
        )
        return done, log.read_text() if log.exists() else ""

    return run


def test_a_batch_script_of_slurm(slurm, tmp_path):
    cut(community_graph(), 2, "random", tmp_path).folder.rename(tmp_path / "parts")
    done, asked = slurm()
    assert done.returncode == 0, done.stderr
    assert [one["workers"] for one in summaries(done.stdout)] == [2]
    assert json.loads((tmp_path / "run/config.json").read_text())["threads"] == 1
    assert asked == ""


@pytest.mark.parametrize(("status", "requeued"), [(143, True), (3, False)])
def test_slurm_queues_again_what_was_stopped(slurm, status, requeued):
    done, asked = slurm(STATUS=str(status))
    assert done.returncode == status
    assert asked == (f"requeue {os.getpid()}\n" if requeued else "")
