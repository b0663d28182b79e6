"""Losses, schedules, clipping, averages and regression: several workers do what a plain loop of torch does."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from exactly import config
from graphs import community_graph, cut
from own_losses import WEIGHTS, a_mean
from torch import nn
from torch.nn import functional

from isthmus.comm import Hub
from isthmus.engine import train
from isthmus.engine.learning import OPTIMIZERS, factor, read_scheduler
from isthmus.engine.progress import Progress
from isthmus.errors import InputError
from isthmus.graph import load
from isthmus.nn import GCNConv

STEPS = 20


def relabelled(graph):
    """The same graph with nodes in the order of their classes, so that blocks of nodes are skewed parts."""
    order = np.argsort(graph.y if graph.y.ndim == 1 else graph.y[:, 0], kind="stable")
    dense = np.zeros((graph.num_nodes, graph.num_nodes), bool)
    dense[np.repeat(np.arange(graph.num_nodes), graph.degree), graph.indices] = True
    dense = dense[order][:, order]
    targets, sources = np.nonzero(dense)
    del targets
    rows = {name: getattr(graph, name)[order] for name in ("x", "y", "train_mask", "val_mask", "test_mask")}
    indptr = np.concatenate([[0], np.cumsum(dense.sum(1))]).astype(np.int64)
    return replace(graph, indptr=indptr, indices=sources.astype(np.int32), edge_attr=None, **rows)


def with_values(graph, targets=2):
    draw = np.random.default_rng(0)
    y = graph.x[:, :targets] * 2 + draw.normal(size=(graph.num_nodes, targets))
    return replace(graph, y=y, num_classes=targets)


GRAPHS = {
    "classes": relabelled(community_graph()),
    "labels": relabelled(community_graph(multilabel=True)),
    "values": relabelled(with_values(community_graph())),
}


class Net(nn.Module):
    def __init__(self, out):
        super().__init__()
        self.first, self.last = GCNConv(10, 8), GCNConv(8, out)

    def forward(self, graph, x):
        return self.last(graph, graph.dropout(self.first(graph, x), 0.5, relu=True))


def runs(name, folder, parts=4, model=None, **options):
    """Losses and final state of several workers, and the model they began with."""
    graph = GRAPHS[name]
    book = cut(graph, parts, "blocks", folder)
    if model is None:
        torch.manual_seed(0)
        model = Net(graph.num_classes).double()
    losses = []
    asked = config(**{"steps": STEPS, "eval_every": STEPS, **options})

    def work(transport):
        watch = (lambda line: losses.append(line["loss"])) if transport.rank == 0 else None
        return train(book, asked, transport, model=copy.deepcopy(model), watch=watch)

    found = Hub(parts).run(work)
    return losses, found[0].model, found[0].summary, model


def one(name, folder, **options):
    return runs(name, folder, 1, **options)


def smoothed(logits, y):
    return functional.cross_entropy(logits, y, WEIGHTS, label_smoothing=0.2)


def focal(logits, y):
    each = functional.cross_entropy(logits, y, reduction="none")
    return ((1 - torch.exp(-each)) ** 2 * each).mean()


def balanced(logits, y):
    count = torch.bincount(y, minlength=4).double()
    return functional.cross_entropy(logits, y, len(y) / (4 * count))


HERE = "own_losses"
LOSSES = [
    ("classes", "cross-entropy,weights=0.2/1/3/0.5,smoothing=0.2", smoothed),
    ("classes", "cross-entropy,weights=balanced", balanced),
    ("classes", "focal", focal),
    ("classes", f"{HERE}:per_row", a_mean),
    ("classes", f"{HERE}:weighed", lambda logits, y: functional.cross_entropy(logits, y, WEIGHTS)),
    ("classes", f"{HERE}:a_mean", a_mean),
    ("labels", "bce,weights=1/2/3/4", lambda z, y: functional.binary_cross_entropy_with_logits(
        z, y.double(), pos_weight=torch.tensor([1.0, 2, 3, 4]).double())),
    ("labels", None, lambda z, y: functional.binary_cross_entropy_with_logits(z, y.double())),
    ("values", None, functional.mse_loss),
    ("values", "mae", functional.l1_loss),
    ("values", "huber,delta=0.5", lambda z, y: functional.huber_loss(z, y, delta=0.5)),
]  # fmt: skip


class Plain(nn.Module):
    """The same model for one process and a dense matrix, without dropout."""

    def __init__(self, net, graph):
        super().__init__()
        self.net = net
        dense = torch.eye(graph.num_nodes, dtype=torch.float64)
        dense[np.repeat(np.arange(graph.num_nodes), graph.degree), graph.indices] = 1
        scale = dense.sum(1).rsqrt()
        self.p = scale[:, None] * dense * scale

    def forward(self, x):
        for k, conv in enumerate((self.net.first, self.net.last)):
            x = self.p @ x @ conv.weight.t() + conv.bias
            x = x.relu() if k == 0 else x
        return x


class Still(Net):
    def forward(self, graph, x):
        return self.last(graph, self.first(graph, x).relu())


@pytest.mark.parametrize(("task", "loss", "truth"), LOSSES)
def test_losses_on_skewed_parts(tmp_path, task, loss, truth):
    graph = GRAPHS[task]
    torch.manual_seed(0)
    net = Still(graph.num_classes).double()
    losses, model, *_ = runs(task, tmp_path, model=net, loss=loss, optimizer="sgd,momentum=0.9")
    plain = Plain(copy.deepcopy(net), graph)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.01, momentum=0.9)
    x, y, rows = torch.from_numpy(graph.x), torch.from_numpy(graph.y), torch.from_numpy(graph.train_mask[:, 0])
    for found in losses:
        optimizer.zero_grad()
        want = truth(plain(x)[rows], y[rows])
        want.backward()
        optimizer.step()
        assert found == pytest.approx(want.item(), abs=1e-10)
    for a, b in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


def test_a_loss_that_is_no_mean_is_refused(tmp_path):
    with pytest.raises(InputError, match="a_sum does not return the mean over rows: return one value per row"):
        runs("classes", tmp_path, loss=f"{HERE}:a_sum")


MORE = [
    {"scheduler": "cosine,warmup=3"},
    {"scheduler": "plateau,patience=0,factor=0.5", "eval_every": 2},
    {"clip": 0.05, "optimizer": "adamw"},
    {"accumulate": 3},
    {"ema": 0.9, "optimizer": "rmsprop"},
    {"metric": "macro-f1", "optimizer": "NAdam", "weight_decay": 0.01},
]


@pytest.mark.parametrize("options", MORE, ids=lambda options: next(iter(options)))
def test_one_worker_and_four_agree(tmp_path, options):
    alone, together = one("classes", tmp_path, **options), runs("classes", tmp_path, **options)
    np.testing.assert_allclose(together[0], alone[0], rtol=0, atol=1e-10)
    torch.testing.assert_close(together[1].state_dict(), alone[1].state_dict(), rtol=0, atol=1e-10)
    assert together[2]["test"] == pytest.approx(alone[2]["test"])


def test_the_average_and_the_schedule_are_those_of_torch(tmp_path):
    torch.manual_seed(0)
    net, graph = Still(4).double(), GRAPHS["classes"]
    _, model, *_ = runs("classes", tmp_path, model=net, ema=0.8, clip=0.1, scheduler="cosine", optimizer="sgd")
    plain = Plain(copy.deepcopy(net), graph)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    average = torch.optim.swa_utils.AveragedModel(plain, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.8))
    x, y, rows = torch.from_numpy(graph.x), torch.from_numpy(graph.y), torch.from_numpy(graph.train_mask[:, 0])
    for _ in range(STEPS):
        optimizer.zero_grad()
        functional.cross_entropy(plain(x)[rows], y[rows]).backward()
        nn.utils.clip_grad_norm_(plain.parameters(), 0.1)
        optimizer.step()
        schedule.step()
        average.update_parameters(plain)
    for a, b in zip(model.parameters(), average.module.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "options",
    [
        {"scheduler": "plateau,patience=0", "ema": 0.9, "eval_every": 2},
        {"accumulate": 2, "scheduler": "cosine,warmup=4", "clip": 0.1, "optimizer": "adafactor", "lr": 0.1},
    ],
)
def test_all_of_it_resumes_to_the_same_bits(tmp_path, options):
    book = cut(GRAPHS["classes"], 2, "blocks", tmp_path)
    asked = config(dropout=0.5, **{"steps": 10, "eval_every": 5, "checkpoint_every": 1, **options})

    def go(out, steps, resume=False):
        def work(transport):
            change = replace(asked, steps=10)
            lines = []
            stop = None if steps == 10 else _Stops(steps)
            try:
                train(book, change, transport, out=out, resume=resume, watch=lines.append, stop=stop)
            except Exception as end:
                if type(end).__name__ != "Stopped":
                    raise
            return [line["loss"] for line in lines]

        return Hub(2).run(work)[0]

    whole = go(tmp_path / "whole", 10)
    assert go(tmp_path / "halves", 5) + go(tmp_path / "halves", 10, resume=True) == whole


class _Stops:
    """Asks to stop in a given step."""

    def __init__(self, at):
        self.left, self.agreed, self.status = at, False, 143

    @property
    def asked(self):
        self.left -= 1
        return self.left <= 0


def test_regression_end_to_end(tmp_path):
    losses, _, summary, _ = runs("values", tmp_path, eval_every=5, lr=0.05)
    assert losses[-1] < losses[0]
    assert summary["test"]["metric"] == "r2"
    for metric in ("mse", "mae"):
        found = runs("values", tmp_path / metric, eval_every=5, metric=metric, lr=0.05)[2]
        assert 0 < found["best_val"] < 5


def test_float_labels_mean_regression_and_it_is_said(tmp_path):
    graph = community_graph()
    targets = np.repeat(np.arange(120), graph.degree)
    masks = {name: getattr(graph, name)[:, 0] for name in ("train_mask", "val_mask", "test_mask")}
    arrays = {"edge_index": np.stack([graph.indices, targets]), "x": graph.x, **masks}
    np.savez(tmp_path / "values.npz", y=graph.x[:, 0], **arrays)
    read = load(tmp_path / "values.npz")
    assert (read.regression, read.num_classes, read.y.shape) == (True, 1, (120, 1))
    assert "regression of 1 value(s) per node (y has values that are no whole numbers)" in read.notes
    np.savez(tmp_path / "whole.npz", y=graph.y.astype(np.float64), **arrays)
    assert not load(tmp_path / "whole.npz").regression
    assert load(tmp_path / "whole.npz", task="regression").regression
    with pytest.raises(InputError, match="not a class number: give integers"):
        load(tmp_path / "values.npz", task="classes")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"loss": "cross"}, "unknown loss 'cross': use one of cross-entropy"),
        ({"loss": "focal,smoothing=1"}, "focal has no option 'smoothing': it knows weights, gamma"),
        ({"loss": "focal,gamma=x"}, "gamma=x: give a number"),
        ({"loss": "focal,gamma"}, "write options as focal,option=value"),
        ({"metric": "acc"}, "unknown metric 'acc'"),
        ({"optimizer": "adam2"}, "unknown optimizer 'adam2'"),
        ({"optimizer": "sgd,momentom=1"}, "has no option 'momentom'"),
        ({"scheduler": "cosinus"}, "unknown scheduler 'cosinus'"),
        ({"scheduler": "step,every=0"}, "every must be at least 1"),
        ({"ema": 1.0}, "ema must be at least 0 and below 1"),
        ({"accumulate": 0}, "accumulate must be at least 1"),
    ],
)
def test_refused_before_any_work(options, words):
    with pytest.raises(InputError, match=words):
        config(**options)


@pytest.mark.parametrize(
    ("task", "options", "words"),
    [
        ("values", {"loss": "focal"}, "does not suit 2 value.*use one of mse, mae, huber"),
        ("values", {"metric": "accuracy"}, "accuracy is not defined for 2 value"),
        ("classes", {"loss": "cross-entropy,weights=1/2"}, "are 2 numbers: give 4"),
        ("classes", {"metric": "r2"}, "r2 is not defined for 4 classes"),
        ("classes", {"optimizer": "rprop", "weight_decay": 0.1}, "rprop has no weight decay"),
        ("classes", {"loss": "nowhere:fn"}, "cannot import the loss nowhere:fn"),
    ],
)
def test_refused_for_this_graph(tmp_path, task, options, words):
    with pytest.raises(InputError, match=words):
        one(task, tmp_path, **options)


def test_every_optimizer_takes_a_step():
    assert {"adam", "adamw", "sgd", "rmsprop", "adagrad", "nadam", "radam", "adamax"} <= set(OPTIMIZERS)
    assert not {"lbfgs", "sparseadam"} & set(OPTIMIZERS)


def test_schedules():
    steps = [factor(read_scheduler("step,every=2,gamma=0.1"), Progress(k), 6) for k in range(6)]
    assert steps == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])
    linear = [factor(read_scheduler("linear,warmup=2,floor=0.5"), Progress(k), 6) for k in range(6)]
    assert linear == pytest.approx([1 / 3, 2 / 3, 1, 0.875, 0.75, 0.625])
