"""Custom models: what they may do with the graph and the rows they get, and the errors when they may not."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from graphs import community_graph, cut
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

import isthmus
from isthmus import recipes
from isthmus.comm import Hub
from isthmus.engine import TrainConfig, train
from isthmus.errors import InputError


@pytest.fixture
def book(tmp_path):
    return cut(community_graph(), 2, "metis", tmp_path)


def alone(graph, tmp_path, **options) -> isthmus.Worker:
    return isthmus.Worker(cut(graph, 1, "metis", tmp_path), dtype="float64", **options)


class Net(nn.Module):
    """A model of two layers; ``first`` makes rows [n, 10] from the features."""

    def __init__(self, first):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.inner, self.last = first, nn.Linear(10, 8).double(), nn.Linear(8, 4).double()

    def forward(self, graph, x):
        return self.last(graph.aggregate(torch.relu(self.inner(self.first(graph, x)))))


def losses(book, model, recipe="exact", steps=6, **options):
    """Return the loss of every step, and the weights at the end."""
    made = model() if isinstance(model, type) else Net(model)
    config = TrainConfig(recipe=recipe, steps=steps, dtype="float64", eval_every=2, **options)

    def work(transport):
        lines, own = [], copy.deepcopy(made)
        policy = recipes.find(recipe).policy(config.options)
        train(book, config, transport, policy=policy, model=own, watch=lines.append)
        return [line["loss"] for line in lines], torch.cat([p.detach().flatten() for p in own.parameters()])

    return Hub(book.num_parts).run(work)[0]


def sum_in_place(graph, x):
    h = graph.aggregate(x, "sum")
    h += x
    return h


def halo_in_place(graph, x):
    rows, (source, target) = graph.halo(x).mul_(2), graph.edge_index
    return rows.new_zeros(graph.num_inner, 10).index_add_(0, target, rows[source])


def halo_anew(graph, x):
    rows, (source, target) = graph.halo(x) * 2, graph.edge_index
    return rows.new_zeros(graph.num_inner, 10).index_add_(0, target, rows[source])


def read_otherwise(graph, x, change):
    """Read rows that a model wrote to in another way: after dropout, by a reader of rows that are kept."""
    change(graph.halo(x))
    return graph.aggregate(graph.dropout(x, 0.3))


@pytest.mark.parametrize("recipe", ["exact", "pipegcn"])
@pytest.mark.parametrize(
    ("in_place", "anew"),
    [
        (sum_in_place, lambda graph, x: graph.aggregate(x, "sum") + x),
        (halo_in_place, halo_anew),
        (lambda g, x: read_otherwise(g, x, torch.Tensor.zero_), lambda g, x: read_otherwise(g, x, torch.zeros_like)),
    ],
)
def test_rows_that_are_kept_survive_what_is_written_to_them(book, recipe, in_place, anew):
    assert losses(book, in_place, recipe)[0] == losses(book, anew, recipe)[0]


def test_features_that_are_changed_in_place_are_read_as_they_are(tmp_path):
    with alone(community_graph(), tmp_path) as worker:
        before = worker.graph.aggregate(worker.x)
        worker.x.mul_(3)
        assert torch.allclose(worker.graph.aggregate(worker.x), 3 * before)
        worker.y.zero_()  # the files of the parts stay as they are
        worker.train_mask.fill_(False)
        worker.graph.degree.clamp_(min=1)
    with isthmus.Worker(tmp_path / "metis-1", dtype="float64") as worker:
        assert torch.equal(worker.graph.aggregate(worker.x), before)
        assert worker.y.any()
        assert worker.train_mask.any()


def test_dropout_only_while_training(tmp_path):
    net = Net(lambda graph, x: graph.dropout(graph.aggregate(x), 0.5))
    with alone(community_graph(), tmp_path) as worker:
        assert torch.equal(worker.predict(net), worker.predict(net))
        plain = Net(lambda graph, x: graph.aggregate(x))
        assert torch.equal(worker.predict(net), worker.predict(plain))
        assert not torch.equal(net(worker.graph, worker.x), plain(worker.graph, worker.x))


def test_rows_and_numbers_are_checked(tmp_path):
    with alone(community_graph(), tmp_path) as worker:
        graph, x = worker.graph, worker.x
        n = graph.num_inner
        for wrong in (x.view(n, 5, 2), torch.cat([x, x]), x[:, 0]):
            with pytest.raises(InputError, match="pass this worker's inner rows"):
                graph.dropout(wrong, 0.5)
        with pytest.raises(InputError, match=r"below 1, not 1.0"):
            graph.dropout(x, 1.0)
        for wrong in (x.half(), x.long()):
            with pytest.raises(InputError, match="pass float32, float64 or bfloat16"):
                graph.aggregate(wrong)
        cases = {
            "mask.nonzero": worker.train_mask,
            f"rows 0 to {n - 1}, not -1 to 3": torch.tensor([-1, 3]),
            f"not 0 to {n}": torch.tensor([0, n]),
            "each row once": torch.tensor([3, 3]),
        }
        for words, only in cases.items():
            with pytest.raises(InputError, match=words):
                graph.aggregate(x, only=only)
        some = torch.tensor([7, 2])
        assert torch.allclose(graph.aggregate(x, only=some), graph.aggregate(x)[some])


def test_activation_checkpoints_leave_the_graph_out(tmp_path):
    """A forward pass that is repeated for its gradient would get other sites and masks."""
    net = Net(lambda graph, x: x)
    with alone(community_graph(), tmp_path) as worker:
        worker.prepare(net, torch.optim.SGD(net.parameters(), lr=0.1))
        h = net.inner(worker.x)
        out = net.last(checkpoint(lambda rows: graph_of(worker, rows), h, use_reentrant=False))
        with pytest.raises(InputError, match="called in a backward pass"):
            worker.step(cross_entropy(out[worker.train_mask], worker.y[worker.train_mask]))


def graph_of(worker, rows):
    return worker.graph.aggregate(worker.graph.dropout(rows, 0.5, relu=True))


class Unread(Net):
    """A model some of whose weights are in no loss."""

    def __init__(self):
        super().__init__(lambda graph, x: graph.aggregate(x))
        self.unread = nn.Linear(3, 3).double()


@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "adam"])
def test_weights_that_no_loss_reads_stay(tmp_path, optimizer):
    """Weights without a gradient do not decay, whatever the number of workers, as in one process."""
    how = {"optimizer": optimizer, "weight_decay": 0.1}
    one, two = (losses(cut(community_graph(), k, "metis", tmp_path), Unread, **how)[1] for k in (1, 2))
    assert torch.allclose(one, two, atol=1e-12)


def test_inductive_training_knows_no_other_features(tmp_path):
    """Inductive training does not even know their mean, where features are scaled."""
    graph = community_graph()
    other = replace(graph, x=np.where(graph.test_mask[:, :1], graph.x * 50, graph.x), name="other")
    how = {"inductive": True, "features": "standard"}
    found = [losses(cut(one, 2, "metis", tmp_path / one.name), Plain, **how)[0] for one in (graph, other)]
    assert found[0] == found[1]


class Plain(Net):
    def __init__(self):
        super().__init__(lambda graph, x: graph.aggregate(x))


def test_after_inference_mode(tmp_path):
    """Results kept of the features may be computed in any mode, and serve training afterwards."""
    net = Plain()
    with alone(community_graph(), tmp_path) as worker:
        worker.prepare(net, torch.optim.SGD(net.parameters(), lr=0.1))
        with torch.inference_mode():
            worker.predict(net)
        out = net(worker.graph, worker.x)
        assert worker.step(cross_entropy(out[worker.train_mask], worker.y[worker.train_mask])) > 0


def test_a_model_that_takes_more_than_the_graph(tmp_path):
    """Evaluation calls the model as its loop does; attributes have the worker's dtype."""

    class Weighted(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = nn.Linear(10, 4).double()

        def forward(self, x, graph, weight=None):
            (source, target), rows = graph.edge_index, graph.halo(self.last(x))
            messages = rows[source] if weight is None else rows[source] * weight[:, :1]
            return messages.new_zeros(graph.num_inner, 4).index_add_(0, target, messages)

    net = Weighted()
    with alone(community_graph(), tmp_path) as worker:
        assert worker.graph.edge_attr.dtype == torch.float64
        said = worker.predict(net, lambda graph, x: net(x, graph, graph.edge_attr))
        assert torch.equal(said, net(worker.x, worker.graph, worker.graph.edge_attr))
        mask = worker.test_mask
        right = float((said.argmax(1) == worker.y)[mask].double().mean())
        found = worker.evaluate(net, lambda graph, x: net(x, graph, graph.edge_attr))["test"]
        assert found == pytest.approx(right)
