"""Several hosts: rows cross between them once, under every cut, and what is trained stays the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from exactly import assert_equal_runs, config, run
from graphs import community_graph, cut, with_few

from isthmus.comm import Hub
from isthmus.engine import train
from isthmus.errors import InputError
from isthmus.local import Policy, Savings
from isthmus.partition import partition
from isthmus.partition.links import messages
from isthmus.recipes import find

CUTS = {"edge": "random", "cover": "random", "vertex": "ebv"}


def parts(graph, how, folder):
    return partition(graph, 4, CUTS[how], cut=how, out=folder / how)


def plain(nodes=160, degree=6.0):
    return replace(community_graph(nodes, degree=degree, directed=True), edge_attr=None)


@pytest.mark.parametrize(("how", "model"), [("edge", "gat"), ("cover", "sage"), ("vertex", "gcn"), ("vertex", "gat")])
def test_relays_are_exact(tmp_path, how, model):
    graph, asked = with_few(plain(80)), config(model, 0.5)
    alone, book = run(cut(graph, 1, "random", tmp_path), asked), parts(graph, how, tmp_path)
    assert_equal_runs(alone, run(book, replace(asked, hosts=2)))


@pytest.mark.parametrize("how", CUTS)
def test_of_a_node_on_k_hosts_k_minus_1_rows_cross(tmp_path, how):
    book, steps = parts(plain(80), how, tmp_path), 2
    asked = config("gcn", hosts=2, steps=steps, eval_every=steps)
    asked = replace(asked, model=replace(asked.model, layers=2))

    def between(relay):
        savings = Savings(read_rows=False, cover=how == "cover", relay=relay)
        return run(book, asked, Policy(savings))[2]["between_hosts"]["rows_per_step"]

    once = messages(book, 2)["outer_rows"]
    assert between(relay=True) == round((2 * steps + 1) * once / steps)  # both passes; input rows in the first step
    assert between(relay=False) > between(relay=True)


@pytest.mark.parametrize(
    ("how", "recipe", "options"),
    [
        ("edge", "pipegcn", {"smooth_features": 0.9, "smooth_gradients": 0.9}),
        ("edge", "exact", {"bits": 8}),
        ("vertex", "cdfgnn", {"epsilon": 0.05}),
        ("vertex", "distgnn", {"staleness": 2}),
    ],
)
def test_recipes_resume_bit_for_bit_with_relays(tmp_path, how, recipe, options):
    book, policy = parts(plain(80), how, tmp_path), find(recipe).policy(options)

    def losses(steps, out, resume=False):
        found, asked = [], config("gcn", 0.5, steps=steps, hosts=2)

        def work(transport):
            watch = (lambda line: found.append(line["loss"])) if transport.rank == 0 else None
            train(book, asked, transport, policy=policy, out=tmp_path / out, resume=resume, watch=watch)

        Hub(4).run(work)
        return found

    whole = losses(8, "whole")
    assert losses(4, "parted") + losses(8, "parted", resume=True) == whole
    assert all(torch.isfinite(torch.tensor(whole)))


def test_late_rows_are_what_they_are_without_relays(tmp_path):
    """Where nothing is coded or compared, hosts change no row, only its way."""
    book, policy = parts(plain(80), "edge", tmp_path), find("pipegcn").policy({})
    one, other = (run(book, config("sage", 0.5, hosts=hosts), policy) for hosts in (1, 2))
    assert_equal_runs(one, other)


def test_more_hosts_than_workers_are_refused(tmp_path):
    with pytest.raises(InputError, match="4 workers cannot be on 5 hosts: give --hosts from 1 to 4"):
        run(parts(plain(40), "edge", tmp_path), config(hosts=5))
