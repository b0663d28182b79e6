"""The cover cut: exact, whatever the cover, and with fewer rows than the halo has."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from exactly import assert_equal_runs, config, run
from graphs import community_graph, cut, with_few
from products import pairwise
from safetensors.torch import load_file
from torch import nn

from isthmus.comm import Hub
from isthmus.engine import train
from isthmus.errors import InputError
from isthmus.local import covers
from isthmus.local.rows import scatter_rows
from isthmus.nn import GCNConv, SAGEConv
from isthmus.partition import partition
from isthmus.recipes import find


def rows(result):
    return result[2]["rows"]["sent"]


@pytest.mark.parametrize(*pairwise(workers=[2, 3, 4], model=["gcn", "sage"], few=[False, True]))
def test_covers_are_exact_and_send_fewer_rows(tmp_path, model, workers, few):
    graph = with_few(community_graph(240, degree=4.0, directed=True)) if few else community_graph(directed=True)
    asked = config(model, 0.5)
    alone, book = run(cut(graph, 1, "random", tmp_path), asked), cut(graph, workers, "random", tmp_path)
    covered, halo = run(book, replace(asked, cut="cover")), run(book, replace(asked, cut="edge"))
    assert_equal_runs(alone, covered)
    assert_equal_runs(alone, halo)
    assert rows(covered) < rows(halo)
    assert rows(run(book, asked)) == rows(covered)  # the default of exact


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_any_choice_of_sources_is_exact(tmp_path, monkeypatch, share):
    """Also where one of the legs is empty."""
    draw = torch.Generator().manual_seed(1)
    monkeypatch.setattr(covers, "halo_cover", lambda halo, *_: torch.rand(halo.num_cols, generator=draw) < share)
    graph = with_few(community_graph(240, degree=4.0))
    alone = run(cut(graph, 1, "metis", tmp_path), config("sage", 0.5))
    assert_equal_runs(alone, run(cut(graph, 3, "metis", tmp_path), config("sage", 0.5)))


def test_stored_covers_and_several_parts_on_a_worker(tmp_path):
    graph, asked = community_graph(), config("gcn", 0.5)
    alone = run(cut(graph, 1, "metis", tmp_path), asked)
    book = partition(graph, 4, "metis", cut="cover", out=tmp_path / "stored")
    assert book.part(0).cover is not None
    assert_equal_runs(alone, run(book, asked))
    losses = []
    watch = {"watch": lambda line: losses.append(line["loss"])}
    Hub(2).run(lambda transport: train(book, asked, transport, **(watch if transport.rank == 0 else {})))
    torch.testing.assert_close(torch.tensor(losses, dtype=torch.float64), alone[0], rtol=0, atol=1e-10)


def weighted(graph):
    return replace(graph, edge_attr=np.random.default_rng(1).random(graph.num_edges) + 0.1)


@pytest.mark.parametrize(
    ("model", "workers", "dropout", "directed", "few"),
    [("gcn", 2, 0.5, True, True), ("sage", 3, 0.0, False, True), ("gcn", 4, 0.0, False, False)],
)
def test_edge_weights_are_lent_with_their_edges(tmp_path, model, workers, dropout, directed, few):
    graph = weighted(community_graph(120, degree=4.0, directed=directed))
    graph, asked = with_few(graph) if few else graph, config(model, dropout)
    alone, book = run(cut(graph, 1, "random", tmp_path), asked), cut(graph, workers, "random", tmp_path)
    covered = run(book, replace(asked, cut="cover"))
    assert_equal_runs(alone, covered)
    assert rows(covered) < rows(run(book, replace(asked, cut="edge", steps=1)))


class Normed(nn.Module):
    """Convolutions with norms over all nodes between them; the last computes only the rows that are read."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([SAGEConv(10, 8), GCNConv(8, 8), SAGEConv(8, 4)])
        self.norms = nn.ModuleList([nn.BatchNorm1d(8), nn.BatchNorm1d(8)])

    def forward(self, graph, x):
        for conv, norm in zip(self.convs, self.norms, strict=False):
            x = graph.dropout(norm(conv(graph, x)), 0.5, relu=True)
        return scatter_rows(self.convs[-1](graph, x, graph.read), graph.read, graph.num_rows)


def test_norms_and_edge_weights_together(tmp_path):
    torch.manual_seed(0)
    graph, model = with_few(weighted(community_graph(120, directed=True))), Normed().double()
    asked = config(optimizer="sgd", lr=0.1)  # a norm cancels biases before it: adam would scale their rounding up
    alone = run(cut(graph, 1, "random", tmp_path), asked, model=model)
    assert_equal_runs(alone, run(cut(graph, 3, "random", tmp_path), replace(asked, cut="cover"), model=model))


def test_on_one_host_that_was_found_out_covers_must_pay(tmp_path, monkeypatch):
    graph = with_few(community_graph(240, degree=4.0))
    book = cut(graph, 3, "random", tmp_path)

    def sent(**asked):
        def work(transport):
            transport.hosts_given = False
            return train(book, config("sage", steps=2, eval_every=2, **asked), transport).summary["rows"]["sent"]

        return Hub(3).run(work)[0]

    halo, cover = sent(cut="edge"), sent(cut="cover")
    assert cover < sent() == halo
    monkeypatch.setattr(covers, "LEAST", 1)
    assert sent() == cover


def test_attention_takes_the_halo(tmp_path):
    book = cut(community_graph(), 3, "metis", tmp_path)
    one, other = (run(book, config("gat", cut=where)) for where in ("cover", "edge"))
    assert rows(one) == rows(other)
    assert_equal_runs(one, other)


LATE = [{}, {"staleness": 3, "start": "as-published"}, {"staleness": 2, "savings": "as-published"}]


@pytest.mark.parametrize(
    *pairwise(options=LATE, model=["gcn", "sage"], dropout=[0.0, 0.5], few=[False, True], workers=[2, 3])
)
def test_late_sums_are_the_sums_of_late_rows(tmp_path, options, model, dropout, few, workers):
    """Made by the owner with the dropout masks of the step that reads them; their gradients go home with those."""
    graph, pipegcn = community_graph(120, degree=4.0, directed=True), find("pipegcn").policy(options)
    book = cut(with_few(graph) if few else graph, workers, "random", tmp_path)
    halo, covered = (run(book, config(model, dropout, cut=where), pipegcn) for where in ("edge", "cover"))
    assert_equal_runs(halo, covered)
    assert rows(covered) < rows(halo)


def test_late_rows_go_on_as_they_are_under_way(tmp_path):
    """A run that was begun under covers or with the halo is resumed so, whatever would be taken now."""
    book, pipegcn = cut(with_few(community_graph(60)), 2, "random", tmp_path), find("pipegcn").policy({})

    def trained(steps, name, resume=False, given=True, **asked):
        def work(transport):
            transport.hosts_given = given  # else on one host, where so small a cover does not pay
            about = config("sage", 0.5, steps=steps, checkpoint_every=4, **asked)
            return train(book, about, transport, policy=pipegcn, out=tmp_path / name, resume=resume).summary["test"]

        Hub(2).run(work)
        return load_file(tmp_path / name / "checkpoints" / f"step-{steps}" / "model.safetensors")

    for given, cut_now in ((True, None), (False, "cover")):
        whole = trained(8, f"whole {given}", given=given)
        trained(4, f"half {given}", given=given)
        resumed = trained(8, f"half {given}", resume=True, given=not given, cut=cut_now)
        assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    with pytest.raises(InputError, match="resume it with --cut cover"):
        trained(12, "half True", resume=True, cut="edge")


@pytest.mark.parametrize(
    ("recipe", "options"),
    [("pipegcn", {"smooth_features": 0.9}), ("bns", {}), ("exact", {"bits": 8}), ("sancus-e", {}), ("isthmus", {})],
)
def test_recipes_whose_rows_are_kept_coded_drawn_or_skipped_refuse_it(tmp_path, recipe, options):
    book = cut(community_graph(), 2, "metis", tmp_path)
    with pytest.raises(InputError, match="fresh"):
        run(book, config(cut="cover"), find(recipe).policy(options))


def test_vanilla_may_be_asked_for_it(tmp_path):
    book, vanilla = cut(community_graph(), 3, "metis", tmp_path), find("vanilla").policy({})
    one, other = run(book, config(cut="cover"), vanilla), run(book, config(), vanilla)
    assert_equal_runs(one, other)
    assert rows(one) < rows(other)


@pytest.mark.parametrize("least", [1, 10**6])
def test_workers_decide_together_whether_a_cover_pays(tmp_path, monkeypatch, least):
    """Where one computes nearly all rows of a layer and another few, they come to their covers on different ways."""
    monkeypatch.setattr(covers, "LEAST", least)
    book, asked = cut(with_few(community_graph(60)), 2, "random", tmp_path), config("sage", steps=5, eval_every=5)

    def work(transport):
        transport.hosts_given = False  # found out to be on one host
        return train(book, asked, transport).summary["test"]["score"]

    assert len(set(Hub(2, timeout=5).run(work))) == 1
