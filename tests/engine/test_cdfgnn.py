"""CDFGNN against its literal algorithm: losses, the path of ε, and which rows are sent, step by step; its limits."""

from __future__ import annotations

import json
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from exactly import assert_equal_runs, config, run
from graphs import cut
from oracle.cdfgnn import Options
from oracle.harness import STEPS
from oracle.vertex import LR, SHAPE, graph_of, oracle_of, vertex

from isthmus.comm import Hub
from isthmus.comm.channel.channel import Channel
from isthmus.engine import TrainConfig, train
from isthmus.errors import InputError
from isthmus.recipes import find
from isthmus.report.cache import cache_figures
from isthmus.report.run import Run

PUBLISHED = "as-published"
ASKED = TrainConfig(
    model=SHAPE, recipe="cdfgnn", optimizer="sgd", lr=LR, steps=STEPS, eval_every=STEPS, dtype="float64"
)
CASES = [
    (2, {}, Options(0.01)),
    (3, {"epsilon": 0.2, "bits": 4, "adapt": False}, Options(0.2, False, 4)),
    (4, {"epsilon": 0.1, "bits": 32}, Options(0.1, bits=32)),
    (3, {"epsilon": 0.1, "resync": 7}, Options(0.1, resync=7)),
    (2, {"epsilon": 0.1, "error": PUBLISHED}, Options(0.1, follows=False)),
    (3, {"epsilon": 0.1, "select": PUBLISHED}, Options(0.1)),
    (2, {"epsilon": 0.1, "select": PUBLISHED, "rule": PUBLISHED, "error": PUBLISHED, "singletons": PUBLISHED},
     Options(0.1, follows=False, singletons=True, as_printed=True)),
]  # fmt: skip


def trained(book, given, monkeypatch, asked=ASKED):
    """Losses, path of ε, and the nodes sent by (step, worker, site, pass, leg)."""
    lines, sent, lock, hear = [], {}, threading.Lock(), Channel._hear

    def heard(self, mine, links, step, where):
        part = book.part(self.transport.rank)
        for q, picks in enumerate(mine):
            block = part.nodes[links.send_rows[q]] if self.id.leg == "scatter" else np.split(
                part.halo_nodes, links.mirrors.ptr[1:-1])[q]  # fmt: skip
            with lock:
                key = step, self.transport.rank, *self.id
                sent.setdefault(key, set()).update((block if picks is None else block[picks.numpy()]).tolist())
        return hear(self, mine, links, step, where)

    monkeypatch.setattr(Channel, "_hear", heard)

    def work(transport):
        watch = lines.append if transport.rank == 0 else None
        train(book, asked, transport, policy=find("cdfgnn").policy(given), watch=watch)

    Hub(book.num_parts).run(work)
    return [line["loss"] for line in lines], [line["cache"]["epsilon"] for line in lines], sent


@pytest.mark.parametrize(("workers", "given", "options"), CASES)
def test_agrees_with_the_paper_step_by_step(tmp_path, monkeypatch, workers, given, options):
    graph = graph_of()
    book = vertex(graph, workers, tmp_path)
    oracle = oracle_of(book, graph, options, drawn=given.get("select") != PUBLISHED)
    want = oracle.train(graph.x, graph.y, graph.train_mask[:, 0], STEPS, LR)
    losses, path, sent = trained(book, {**given, "savings": PUBLISHED}, monkeypatch)
    np.testing.assert_allclose(losses, want, rtol=1e-9)
    np.testing.assert_allclose(path, oracle.path, rtol=1e-12)
    for step, masks in enumerate(oracle.sent):
        for (pass_, layer, leg), mask in masks.items():
            for rank in range(workers):
                got = sent.get((step, rank, layer, pass_, leg), set())
                sending = mask[rank] if leg == "gather" else mask & (oracle.owner == rank)
                assert got == set(np.flatnonzero(sending).tolist())


@pytest.mark.parametrize("workers", [1, 3])
def test_without_cache_and_code_it_is_exact(tmp_path, workers):
    graph, exact = graph_of(), find("cdfgnn").policy({"epsilon": 0, "bits": 32} if workers > 1 else {})
    alone = run(cut(graph, 1, "random", tmp_path), config("sage", 0.5))
    assert_equal_runs(alone, run(vertex(graph, workers, tmp_path), config("sage", 0.5), exact))


def test_resumed_bit_for_bit(tmp_path):
    book = vertex(graph_of(), 3, tmp_path)

    def losses(steps, out, resume=False):
        found, asked = [], replace(ASKED, steps=steps, eval_every=10, model=replace(SHAPE, dropout=0.5, layers=3))

        def work(transport):
            watch = (lambda line: found.append((line["loss"], line["cache"]))) if transport.rank == 0 else None
            policy = find("cdfgnn").policy({"epsilon": 0.1})
            train(book, asked, transport, policy=policy, out=tmp_path / out, resume=resume, watch=watch)

        Hub(3).run(work)
        return found

    assert losses(10, "parted") + losses(20, "parted", resume=True) == losses(20, "whole")


def test_shares_and_threshold_are_recorded_and_drawn(tmp_path):
    book, policy = vertex(graph_of(), 2, tmp_path), find("cdfgnn").policy({"epsilon": 0.2})
    Hub(2).run(lambda transport: train(book, ASKED, transport, policy=policy, out=tmp_path / "run"))
    line = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert line["cache"]["epsilon"] >= 0.001
    assert set(line["cache"]["sent"]) == {"1 forward gather", "1 backward scatter"}
    assert all(0 <= share <= 1 for share in line["cache"]["sent"].values())
    page = cache_figures([Run(tmp_path / "run", "one", {}, [line])])
    assert "Threshold of the cache" in page[0]
    assert "layer 1, backward scatter" in page[1]


def test_other_cuts_are_refused(tmp_path):
    with pytest.raises(InputError, match="--cut vertex --method ebv"):
        run(cut(graph_of(), 2, "random", tmp_path), config(), find("cdfgnn").policy({}))


def test_errors_of_coding_do_not_add_up():
    """Differences at 4 bits over 400 steps: what readers hold stays as close as one message can say."""
    from isthmus.comm import Add, All, Buffers, ChannelId, Links, Stages, codec

    steps, draw = 400, np.random.default_rng(0)
    path = np.cumsum(draw.normal(size=(steps, 6, 16)), axis=0)

    def work(transport):
        other = 1 - transport.rank
        links = Links([torch.arange(6, dtype=torch.int32) if q == other else torch.empty(0, dtype=torch.int32)
                       for q in range(2)], [6 if q == other else 0 for q in range(2)])  # fmt: skip
        stages = Stages(All(), codec(4), merge=Add())
        channel = Channel(transport, stages, links, ChannelId(0, "forward", "scatter"), 0, Buffers())
        gaps = []
        for step in range(steps):
            channel.post(step, torch.from_numpy(path[step]), links, "embeddings")
            gaps.append(float((channel.take(step) - torch.from_numpy(path[step])).abs().mean()))
        return gaps

    gaps = Hub(2).run(work)[0]
    assert np.mean(gaps[-50:]) < 1.2 * np.mean(gaps[50:100])
