"""The manifest in the docs does what the docs say: its pods, as processes of this machine."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from graphs import community_graph, cut
from processes import free_port, reached, steps_of, until

PAGE = Path(__file__).parents[2] / "docs" / "machines.md"
SECRET = "what kubectl create secret has made"
SHORT = ("--hidden", "8", "--eval-every", "5", "--quiet", "--threads", "1")


@pytest.fixture(scope="module")
def manifest() -> dict[str, dict]:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: pip install pyyaml")
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return {one["kind"]: one for one in yaml.safe_load_all(text)}


def variables(manifest: dict[str, dict], index: int) -> dict[str, str]:
    """What the container of a pod finds in its environment."""
    (container,) = manifest["Job"]["spec"]["template"]["spec"]["containers"]
    fields = {"metadata.annotations['batch.kubernetes.io/job-completion-index']": str(index)}

    def value(one: dict) -> str:
        if "value" in one:
            return one["value"]
        source = one["valueFrom"]
        return SECRET if "secretKeyRef" in source else fields[source["fieldRef"]["fieldPath"]]

    given = {one["name"]: value(one) for one in container["env"]}
    assert given["ISTHMUS_SECRET"] == SECRET
    return {**given, "JOB_COMPLETION_INDEX": str(index)}  # as every indexed Job has it


def pods(manifest: dict[str, dict], data: Path, *more: str) -> list[subprocess.Popen]:
    """The command of every pod, with `data` where the volume is mounted, and loopback for the cluster's names."""
    job = manifest["Job"]["spec"]
    (container,) = job["template"]["spec"]["containers"]
    assert container["command"][0] == "isthmus"
    command = [re.sub("^/data", str(data), word) for word in container["command"]]
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "GLOO_SOCKET_IFNAME": "lo"}
    return [
        subprocess.Popen(
            [sys.executable, "-m", *command, *SHORT, *more],
            env={**os.environ, **variables(manifest, index), **meeting},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(job["completions"])
    ]


def ended(running: list[subprocess.Popen]) -> list[tuple[int, str]]:
    return [(pod.returncode, said) for pod in running for said in [pod.communicate(timeout=120)[1]]]


def test_names_and_numbers_agree(manifest):
    service, job = manifest["Service"], manifest["Job"]
    spec, template = job["spec"], job["spec"]["template"]["spec"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    assert template["subdomain"] == service["metadata"]["name"]
    assert spec["completionMode"] == "Indexed"
    environ = variables(manifest, 0)
    assert spec["parallelism"] == spec["completions"] == int(environ["WORLD_SIZE"])
    assert environ["MASTER_ADDR"] == f"{job['metadata']['name']}-0.{service['metadata']['name']}"
    (container,) = template["containers"]
    (mounted,) = container["volumeMounts"]
    assert mounted["name"] in {volume["name"] for volume in template["volumes"]}
    out = container["command"][container["command"].index("--out") + 1]
    assert out.startswith(f"{mounted['mountPath']}/")


def test_pods_that_are_replaced_go_on(manifest, tmp_path):
    """One is killed, all end, the Job starts all of them again with the same command."""
    workers = manifest["Job"]["spec"]["completions"]
    cut(community_graph(), workers, "random", tmp_path).folder.rename(tmp_path / "parts")
    running = pods(manifest, tmp_path, "--steps", "1000000")
    until(lambda: reached(tmp_path / "run", 5))
    os.kill(running[1].pid, signal.SIGKILL)
    assert sorted(status for status, _ in ended(running)) == [-signal.SIGKILL, *[3] * (workers - 1)]
    steps = steps_of(tmp_path / "run")[-1] + 5
    replaced = pods(manifest, tmp_path, "--steps", str(steps))
    assert ended(replaced) == [(0, "")] * workers
    assert json.loads((tmp_path / "run/summary.json").read_text())["steps"] == steps


def test_a_preempted_pod_ends_all_with_a_checkpoint(manifest, tmp_path):
    workers = manifest["Job"]["spec"]["completions"]
    cut(community_graph(), workers, "random", tmp_path).folder.rename(tmp_path / "parts")
    running = pods(manifest, tmp_path, "--steps", "1000000")
    until(lambda: reached(tmp_path / "run", 5))
    os.kill(running[1].pid, signal.SIGTERM)
    results = ended(running)
    assert [status for status, _ in results] == [143] * workers
    step = int(re.search(r"checkpoint of step (\d+) written", results[0][1])[1])
    assert steps_of(tmp_path / "run")[-1] == step
    ignored = [rule for rule in manifest["Job"]["spec"]["podFailurePolicy"]["rules"] if rule["action"] == "Ignore"]
    assert any(rule.get("onExitCodes", {}).get("values") == [143] for rule in ignored)
