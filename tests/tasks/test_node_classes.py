"""Scores over several workers equal scores over all rows at once."""

from __future__ import annotations

import pytest
import torch

from isthmus.comm import Hub, Where
from isthmus.errors import InputError
from isthmus.tasks.node_classes import check_metric, loss_sum, score

HERE = Where("score", "reduce", 0)


def scored(metric, logits, y, parts):
    cuts = torch.tensor_split(torch.arange(len(y)), parts)
    return Hub(parts).run(lambda t: score(metric, logits[cuts[t.rank]], y[cuts[t.rank]], t, HERE))[0]


@pytest.mark.parametrize("parts", [1, 3])
def test_scores_against_scikit_learn(parts):
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(200, 5, generator=draw).round(decimals=1)  # with ties
    y, labels = torch.randint(5, (200,), generator=draw), torch.randint(2, (200, 5), generator=draw)
    said = logits.argmax(1)
    assert scored("accuracy", logits, y, parts) == pytest.approx(metrics.accuracy_score(y, said))
    assert scored("micro-f1", logits, y, parts) == pytest.approx(metrics.f1_score(y, said, average="micro"))
    assert scored("micro-f1", logits, labels, parts) == pytest.approx(
        metrics.f1_score(labels, logits > 0, average="micro")
    )
    assert scored("roc-auc", logits, labels, parts) == pytest.approx(metrics.roc_auc_score(labels, logits))
    binary = y % 2
    assert scored("roc-auc", logits[:, :2], binary, parts) == pytest.approx(
        metrics.roc_auc_score(binary, logits[:, 1] - logits[:, 0])
    )


def test_loss_of_no_rows_has_a_gradient():
    logits = torch.randn(0, 3, requires_grad=True)
    loss = loss_sum(logits, torch.zeros(0, dtype=torch.long))
    assert loss.item() == 0
    loss.backward()
    assert logits.grad.shape == (0, 3)


def test_metric_must_fit_the_labels():
    with pytest.raises(InputError, match="micro-f1"):
        check_metric("accuracy", True, 5)
    with pytest.raises(InputError, match="two classes"):
        check_metric("roc-auc", False, 5)
    with pytest.raises(InputError, match="unknown metric 'acc'"):
        check_metric("acc", False, 2)
