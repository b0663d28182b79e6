"""Evaluation from drawn neighbours: that of all neighbours is the exact one, and workers draw the same."""

from __future__ import annotations

import pytest
from exactly import config, run
from graphs import community_graph, cut

from isthmus.errors import InputError
from isthmus.local import Policy, Savings
from isthmus.minibatch import BatchPolicy

BATCHES = Policy(Savings(read_rows=False), batches=BatchPolicy())


def scores(book, **changes):
    asked = config("sage", 0.5, **{"batch_size": 13, "fanout": "4,3,2", "steps": 6, "eval_every": 2, **changes})
    summary = run(book, asked, BATCHES)[2]
    return summary["train"], summary["best_val"], summary["best_step"], summary["test"]["score"]


def test_all_neighbours_give_the_exact_scores(tmp_path):
    book = cut(community_graph(), 2, "random", tmp_path)
    assert scores(book, eval_fanout=[-1, -1, -1]) == scores(book)


@pytest.mark.parametrize("way", [{}, {"structure": "owner"}, {"batch": "together"}])
def test_workers_draw_the_same_for_evaluation(tmp_path, way):
    graph = community_graph(directed=True)
    alone = scores(cut(graph, 1, "blocks", tmp_path), eval_fanout="2,1,1")
    assert alone != scores(cut(graph, 2, "blocks", tmp_path))
    assert scores(cut(graph, 3, "random", tmp_path), eval_fanout="2,1,1", **way) == alone


def test_one_number_for_every_layer(tmp_path):
    with pytest.raises(InputError, match=r"--eval-fanout draws for 2 hop\(s\), but the model has 3"):
        scores(cut(community_graph(), 1, "random", tmp_path), eval_fanout="2,1")
