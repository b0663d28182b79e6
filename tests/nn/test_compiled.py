"""Models compiled around the exchange give the losses of plain ones; those that are compiled across it are refused."""

from __future__ import annotations

import pytest
import torch
from graphs import community_graph, cut
from torch import nn

from isthmus import Worker
from isthmus.comm import Hub
from isthmus.engine import TrainConfig, train
from isthmus.errors import InputError
from isthmus.nn import ModelConfig, distribute


@pytest.fixture(scope="module", autouse=True)
def compilers_threads(request):
    """Let inductor start its threads before a test looks for those that it leaves behind."""
    if any("inductor" in item.name for item in request.session.items):
        torch.compile(lambda x: x + 1)(torch.ones(1))


class Block(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, graph, x):
        return graph.aggregate(self.linear(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.block, self.last = nn.Linear(10, 8), Block(8), nn.Linear(8, 4)

    def forward(self, graph, x):
        return self.last(self.block(graph, self.first(x).relu()))


def in_place(model: nn.Module) -> nn.Module:
    model.compile(backend="eager")
    return model


def its_method(model: nn.Module) -> nn.Module:
    model.forward = torch.compile(model.forward, backend="eager")
    return model


WAYS = [lambda model: torch.compile(model, backend="eager"), in_place, its_method]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("where", ["Net", "block (Block)"])
def test_refused_in_one_line(way, where):
    model = Net()
    if where == "Net":
        model = way(model)
    else:
        model.block = way(model.block)
    with pytest.raises(InputError, match=r"torch\.compile cannot see through") as refusal:
        distribute(model)
    assert f" in {where}: compile only modules inside it" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_modules_without_the_graph_may_be_compiled(tmp_path):
    """And the result is that of the plain model."""
    book = cut(community_graph(), 2, "random", tmp_path)

    def losses(compile_it):
        def work(transport):
            torch.manual_seed(0)
            model, lines = Net(), []
            if compile_it:
                model.first = torch.compile(model.first, backend="eager")
            train(book, TrainConfig(steps=3), transport, model=model, watch=lambda line: lines.append(line["loss"]))
            return lines

        return Hub(1).run(work)[0]

    assert losses(True) == pytest.approx(losses(False), abs=1e-6)


def sage(features, classes):
    from torch_geometric.nn import GraphSAGE

    return GraphSAGE(features, 8, num_layers=2, out_channels=classes, dropout=0.3)


def gat(features, classes):
    from torch_geometric.nn import GAT

    return GAT(features, 8, num_layers=2, out_channels=classes, dropout=0.3)


class OwnGraphs(Net):
    """A model of one's own: linear layers and an activation around an aggregation."""

    def __init__(self, features, classes):
        super().__init__()


SLOW = [("eager", "sage"), ("eager", f"{__name__}:gat"), ("aot_eager", "gat"), ("aot_eager", f"{__name__}:OwnGraphs")]
SLOW += [("inductor", model) for model in ("gcn", "sage", "gat", f"{__name__}:sage")]


@pytest.mark.filterwarnings("ignore")  # of the compiler, about itself
@pytest.mark.parametrize(
    ("backend", "model"),
    [
        ("eager", "gcn"),
        ("aot_eager", f"{__name__}:sage"),
        *[pytest.param(*one, marks=pytest.mark.full) for one in SLOW],
    ],
)
def test_a_model_compiled_around_the_exchange_gives_the_losses_of_the_plain_one(tmp_path, backend, model):
    book = cut(community_graph(nodes=60), 2, "random", tmp_path)

    def losses(backend):
        def work(transport):
            lines, notes, shape = [], [], {} if ":" in model else {"hidden": 8, "layer_norm": True}
            config = TrainConfig(ModelConfig(model, **shape), dtype="float64", steps=4, compile=backend)
            found = train(book, config, transport, watch=lines.append, note=notes.append)
            assert not any("_orig_mod" in name for name in found.model.state_dict())
            return [*(line["loss"] for line in lines), lines[-1]["val"]], notes

        return Hub(2).run(work)

    compiled, plain = losses(backend), losses(None)
    assert [one[0] for one in compiled] == [pytest.approx(one[0], abs=1e-10) for one in plain]
    assert any(f"compiling the model by {backend} took" in note for note in compiled[0][1])


@pytest.mark.filterwarnings("ignore")
def test_a_loop_of_ones_own_is_compiled_too(tmp_path):
    book = cut(community_graph(nodes=60), 1, "random", tmp_path)

    def losses(backend):
        torch.manual_seed(0)
        with Worker(book, transport=Hub(1).transport(0), compile=backend) as worker:
            model = Net()
            worker.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
            mask = worker.train_mask
            rows = lambda: model(worker.graph, worker.x)[mask]  # noqa: E731
            return [worker.step(nn.functional.cross_entropy(rows(), worker.y[mask])) for _ in range(3)]

    assert losses("eager") == pytest.approx(losses(None), abs=1e-6)


def test_compilers_that_are_not_there_are_refused(tmp_path, monkeypatch):
    book = cut(community_graph(nodes=60), 1, "random", tmp_path)
    with pytest.raises(InputError, match=r"torch has no compiler 'abacus': use one of .*inductor"):
        train(book, TrainConfig(steps=1, compile="abacus"), Hub(1).transport(0))
    monkeypatch.setattr(torch, "compile", lambda fn, backend: fn(None))
    with pytest.raises(InputError, match=r"--compile inductor does not work here .*install a C\+\+ compiler"):
        train(book, TrainConfig(steps=1, compile="inductor"), Hub(1).transport(0))


def test_the_engine_refuses_it_too(tmp_path):
    book = cut(community_graph(), 1, "random", tmp_path)
    with pytest.raises(InputError, match="leave it out"):
        train(book, TrainConfig(steps=3), Hub(1).transport(0), model=torch.compile(Net(), backend="eager"))
