"""Scores over several workers equal scores over all rows at once."""

from __future__ import annotations

import pytest
import torch

from isthmus.comm import Hub, Where
from isthmus.errors import InputError
from isthmus.tasks.losses import build_loss
from isthmus.tasks.metrics import check_metric, score
from isthmus.tasks.task import Task

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
    values = torch.randn(200, 5, generator=draw).double()
    said, binary, margin = logits.argmax(1), y % 2, logits[:, 1] - logits[:, 0]
    for metric, out, truth, want in [
        ("accuracy", logits, y, metrics.accuracy_score(y, said)),
        ("micro-f1", logits, y, metrics.f1_score(y, said, average="micro")),
        ("macro-f1", logits, y, metrics.f1_score(y, said, average="macro")),
        ("balanced-accuracy", logits, y, metrics.balanced_accuracy_score(y, said)),
        ("micro-f1", logits, labels, metrics.f1_score(labels, logits > 0, average="micro")),
        ("macro-f1", logits, labels, metrics.f1_score(labels, logits > 0, average="macro")),
        ("roc-auc", logits, labels, metrics.roc_auc_score(labels, logits)),
        ("roc-auc", logits[:, :2], binary, metrics.roc_auc_score(binary, margin)),
        ("ap", logits, labels, metrics.average_precision_score(labels, logits)),
        ("ap", logits[:, :2], binary, metrics.average_precision_score(binary, margin)),
        ("r2", logits, values, metrics.r2_score(values, logits)),
        ("mse", logits, values, metrics.mean_squared_error(values, logits)),
        ("mae", logits, values, metrics.mean_absolute_error(values, logits)),
        ("own_losses:share_right", logits, y, metrics.accuracy_score(y, said)),
    ]:
        assert scored(metric, out, truth, parts) == pytest.approx(want), metric


@pytest.mark.parametrize("metric", ["accuracy", "micro-f1", "macro-f1", "balanced-accuracy", "roc-auc", "ap"])
def test_the_score_of_no_rows_is_nan(metric):
    found = scored(metric, torch.zeros(0, 2), torch.zeros(0, dtype=torch.long), 2)
    assert found != found


def test_loss_of_no_rows_has_a_gradient():
    logits, transport = torch.randn(0, 3, requires_grad=True), Hub(1).transport(0)
    y = torch.zeros(0, dtype=torch.long)
    loss = build_loss(None, Task("classes", 3), torch.tensor([0, 1]), transport).share(logits, y, transport, 0)
    assert loss.item() == 0
    loss.backward()
    assert logits.grad.shape == (0, 3)


def test_metric_must_fit_the_labels():
    with pytest.raises(InputError, match="micro-f1"):
        check_metric("accuracy", Task("labels", 5))
    with pytest.raises(InputError, match="two classes"):
        check_metric("roc-auc", Task("classes", 5))
    with pytest.raises(InputError, match="unknown metric 'acc'"):
        check_metric("acc", Task("classes", 2))
