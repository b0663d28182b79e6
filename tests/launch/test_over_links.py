"""Training with workers on the hosts of a testbed: the same result, and every byte accounted for."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from beds import needs_testbed
from graphs import community_graph, cut

from isthmus import recipes
from isthmus.comm import Hub
from isthmus.engine import TrainConfig, train
from isthmus.launch import local
from isthmus.launch.job import Job
from isthmus.launch.wire import crossed
from isthmus.nn import ModelConfig
from isthmus.testbed import Counters
from isthmus.testbed import Testbed as Bed

FIXED = 500_000  # bytes of meeting and of gloo's headers, in all
WIDE = TrainConfig(model=ModelConfig("sage", 2, 1024), recipe="vanilla", steps=16, eval_every=8)


@needs_testbed
def test_bytes_on_the_wire_are_those_that_were_counted(tmp_path):
    book = cut(community_graph(nodes=400, features=200), 2, "random", tmp_path)
    job = Job("train", str(book.folder), WIDE, str(tmp_path / "run"), quiet=True, timeout=120)
    with Bed(2, "2gbit") as bed:
        summary = local.start(job, 2, bed)
    link = summary["link"]
    assert json.loads((tmp_path / "run/summary.json").read_text())["link"] == link
    assert link["counted_bytes"] > 16 * sum(summary["bytes_per_step"].values())  # evaluations too
    assert link["counted_bytes"] > 10 * FIXED
    assert abs(link["payload_bytes"] - link["counted_bytes"]) < 0.03 * link["counted_bytes"] + FIXED
    policy = recipes.find(WIDE.recipe).policy()
    alone = Hub(2).run(lambda transport: train(book, WIDE, transport, policy=policy))[0].summary
    assert summary["bytes_per_step"] == alone["bytes_per_step"]
    assert summary["best_val"] == pytest.approx(alone["best_val"])


@needs_testbed
def test_on_two_hosts_of_two_workers_a_row_crosses_once(tmp_path):
    """Hosts are those of the testbed: workers 0 and 2 share one, 1 and 3 the other. 1: as if there were none."""
    book, model = cut(community_graph(nodes=600, degree=20.0), 4, "random", tmp_path), ModelConfig("gcn", 3, 32)

    def asked(hosts):
        return TrainConfig(model=model, steps=4, eval_every=4, cut="edge", hosts=hosts)

    job = Job("train", str(book.folder), asked(2), str(tmp_path / "run"), quiet=True, timeout=120)
    with Bed(2, "2gbit") as bed:
        once = local.start(job, 4, bed)
    straight = Hub(4).run(lambda transport: (train(book, asked(1), transport).summary, transport.sent))
    assert once["best_val"] == straight[0][0]["best_val"]
    assert once["between_hosts"]["hosts"] == 2
    assert abs(once["link"]["payload_bytes"] - once["link"]["counted_bytes"]) < FIXED
    counted = _crossed(2, [{str(peer): size for peer, size in sent.items()} for _, sent in straight])["counted_bytes"]
    assert once["link"]["counted_bytes"] < 0.8 * counted


def test_only_bytes_between_hosts_are_counted():
    """Workers 0 and 1 share a host, 2 and 3 the other."""
    sent = [{"1": 1000, "2": 10, "3": 100}, {"0": 1000}, {"3": 1000}, {"0": 7}]
    assert _crossed(2, sent)["counted_bytes"] == 10 + 100 + 7
    assert _crossed(4, sent)["counted_bytes"] == sum(size for peers in sent for size in peers.values())
    assert _crossed(1, sent)["counted_bytes"] == 0
    assert _crossed(1, sent)["payload_bytes"] == 2000 - 10 * 66


def _crossed(hosts: int, sent: list[dict[str, int]]) -> dict:
    bed = Bed(hosts, "1gbit")
    bed.hosts = [f"host {k}" for k in range(hosts)]
    return crossed(bed, Counters(sent=2000, packets=10), sent)


@pytest.mark.full
@needs_testbed
def test_torchrun_like_places_on_every_host(tmp_path):
    """`isthmus testbed -- isthmus train`: the command that would run on three machines.

    Nobody names an interface: left alone gloo would take loopback, since these hosts have no names.
    """
    book = cut(community_graph(), 3, "random", tmp_path)
    run = tmp_path / "run"
    isthmus = [sys.executable, "-m", "isthmus"]
    train_it = [*isthmus, "train", str(book.folder), "--hidden", "8", "--steps", "4", "--quiet", "--out", str(run)]
    bed = [*isthmus, "testbed", "--hosts", "3", "--link", "100mbit", "--", "env", "-u", "GLOO_SOCKET_IFNAME"]
    bed.append("LOCAL_WORLD_SIZE=1")  # as it is on three machines
    done = subprocess.run([*bed, *train_it], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads((run / "summary.json").read_text())["workers"] == 3
    assert "bytes left the 3 host(s) over links of 100mbit" in done.stderr
