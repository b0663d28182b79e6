"""The exchange as a pair of Functions: its order in both passes, branches, and what is refused."""

from __future__ import annotations

import pytest
import torch
from graphs import community_graph, cut

from isthmus.comm import Channel, Hub
from isthmus.errors import InputError
from isthmus.local import LocalGraph, Policy, Savings
from isthmus.recipes import find
from isthmus.shard import Shard

WIDTH = 6
WEIGHT = torch.cos(torch.arange(WIDTH)).double()


def graph_of(book, transport, **options) -> LocalGraph:
    """Return a worker's graph, at the beginning of a training step."""
    graph = LocalGraph.from_part(book.part(transport.rank), transport, True, dtype=torch.float64, **options)
    graph.runtime.begin(0)
    return graph


def rows(graph: LocalGraph) -> torch.Tensor:
    return torch.sin(graph.nodes[:, None] * 0.7 + torch.arange(WIDTH)).double().requires_grad_()


@pytest.mark.parametrize("overlap", [True, False])
def test_order(tmp_path, monkeypatch, overlap):
    """Rows leave before the inner product and are waited for after it, in both passes; or, not overlapped, before."""
    done: list[str] = []

    def spied(cls, name, label):
        plain = getattr(cls, name)
        monkeypatch.setattr(cls, name, lambda self, *args, **named: done.append(label) or plain(self, *args, **named))

    for cls, name, label in (
        (Channel, "post", "post"),
        (Channel, "take", "take"),
        (Shard, "aggregate_inner", "inner"),
        (Shard, "spread_inner", "inner"),
    ):
        spied(cls, name, label)
    book = cut(community_graph(), 1, "random", tmp_path)
    graph = graph_of(book, Hub(1).transport(0), policy=Policy(Savings(overlap=overlap)))
    out = graph.aggregate(rows(graph)).sum()
    graph.runtime.backward(out)
    assert done == (["post", "inner", "take"] if overlap else ["post", "take", "inner"]) * 2


@pytest.mark.parametrize("kind", ["aggregate", "halo"])
def test_a_loss_that_does_not_reach_a_site(tmp_path, kind):
    """Worker 1's loss reads one of two branches only; the others still get the gradients of what it read: zeros."""
    book = cut(community_graph(), 3, "random", tmp_path)

    def gradient(transport, times_zero: bool):
        graph = graph_of(book, transport)
        x = rows(graph)
        first = graph.aggregate(x, "mean")
        second = graph.aggregate(x * 2) if kind == "aggregate" else graph.halo(x * 2)
        loss = (first @ WEIGHT).square().sum()
        if transport.rank != 1:
            loss = loss + (second @ WEIGHT).square().sum()
        elif times_zero:
            loss = loss + 0.0 * (second @ WEIGHT).square().sum()
        graph.runtime.backward(loss)
        return x.grad

    unread = Hub(3, timeout=20).run(lambda transport: gradient(transport, times_zero=False))
    zeros = Hub(3, timeout=20).run(lambda transport: gradient(transport, times_zero=True))
    for got, want in zip(unread, zeros, strict=True):
        torch.testing.assert_close(got, want)


def test_walking_back_twice_is_refused(tmp_path):
    graph = graph_of(cut(community_graph(), 1, "random", tmp_path), Hub(1).transport(0))
    loss = graph.aggregate(rows(graph)).sum()
    loss.backward(retain_graph=True)
    with pytest.raises(InputError, match="without retain_graph"):
        loss.backward()


def test_reading_never_draws(tmp_path):
    """A step's graph is drawn when the step begins: worker 0 alone may read it, and no worker waits for another."""
    book = cut(community_graph(), 2, "random", tmp_path)
    policy = find("psc-gcn").policy({"staleness": 0, "rate": 0.5, "least": 0})

    def work(transport):
        graph, found = graph_of(book, transport, policy=policy, seed=3), []
        for step in range(3):
            graph.runtime.begin(step)
            if transport.rank == 0:
                found.append((graph.num_halo, graph.edge_index.shape[1]))
            graph.aggregate(rows(graph))
        graph.runtime.drain()
        return found

    counts, nothing = Hub(2, timeout=20).run(work)
    assert len(set(counts)) > 1
    assert nothing == []


def test_checkpoints_of_before_the_redesign_are_refused(tmp_path):
    graph = graph_of(cut(community_graph(), 1, "random", tmp_path), Hub(1).transport(0))
    with pytest.raises(InputError, match="of another version of isthmus: resume with that version"):
        graph.runtime.restore({"wires.0.forward.policy.first": torch.zeros(1)})
