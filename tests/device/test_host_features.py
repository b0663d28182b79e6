"""Features that stay in the host's memory: the CPU's numbers, and never more of them on the device than a block."""

from __future__ import annotations

import numpy as np
import pytest
import shadow
import torch
from device.plans import Plan, on_device, on_host, parts
from device.test_training import compare
from products import each_value

from isthmus.engine import PredictConfig, predict, train
from isthmus.errors import InputError
from isthmus.kernels import HostRows, host_rows
from isthmus.local import host_features

RECIPES = ("exact", "bns", "pipegcn", "sancus-h", "distdgl")
HOST = {"features_on": "host"}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Several blocks, the last one smaller, and several columns at a time."""
    monkeypatch.setattr(host_rows, "BLOCK_BYTES", 7 * 8 * 8)
    monkeypatch.setattr(host_features, "COLUMNS", 3)


@pytest.mark.parametrize(*each_value(recipe=RECIPES, model=["gcn", "sage", "gat"], workers=[1, 2, 3], drop=[0.0, 0.3]))
def test_the_cpus_numbers(tmp_path, recipe, model, workers, drop):
    plan, book = Plan(recipe, model, config=HOST, shape={"input_dropout": drop}), parts(tmp_path, workers)
    if drop and recipe in ("pipegcn", "sancus-h"):
        with pytest.raises(InputError, match="leave one of them out"):
            on_device(lambda transport: plan.train(book, transport), workers)
    else:
        compare(plan, book, workers)


@pytest.mark.parametrize("config", [{"inductive": True}, {"features": "standard"}, {"features": "rows"}], ids=str)
def test_data_in_other_forms(tmp_path, config):
    compare(Plan("exact", "sage", config={**HOST, **config}), parts(tmp_path, 2), 2)


def test_bf16_products(tmp_path):
    plan = Plan("exact", "sage", {"precision": "bf16"}, config={**HOST, "dtype": "float32"})
    compare(plan, parts(tmp_path, 2), 2, limit=1e-2)


def test_no_more_than_a_block_is_on_the_device(tmp_path, monkeypatch):
    book, made, new = parts(tmp_path, 2), [], shadow.Shadow.__new__

    def counting(cls, held, index=0):
        made.append(tuple(held.shape))
        return new(cls, held, index)

    monkeypatch.setattr(shadow.Shadow, "__new__", staticmethod(counting))
    monkeypatch.setattr(host_rows, "BLOCK_BYTES", 4 * book.features * 8)
    plan = Plan("exact", "gcn", config=HOST)
    on_device(lambda transport: plan.train(book, transport), 2)
    wide = {shape[0] for shape in made if len(shape) == 2 and shape[1] == book.features}
    assert wide <= {1, 2, 3, 4, 8}  # a block, or a weight
    assert min(part.inner for part in book.parts) > 8


def test_only_the_rows_that_are_read_are_fetched():
    held = torch.arange(20.0).view(10, 2)
    x = HostRows.of(held, torch.device("shadow"))
    assert x.held.is_pinned()
    read = x.take(torch.tensor([7, 1, 4], device="shadow"))
    assert read.shape == (3, 2)
    assert read.take(torch.tensor([2, 0], device="shadow")).dense().tolist() == held[[4, 7]].tolist()
    weight = torch.randn(3, 2, device="shadow", requires_grad=True)
    out = host_rows.product([read], weight, None, None)
    out.backward(torch.ones_like(out))
    assert torch.allclose(weight.grad.cpu(), held[[7, 1, 4]].sum(0).expand(3, 2))


@pytest.mark.parametrize("fanout", [None, "4,4"])
def test_predictions_are_the_cpus(tmp_path, fanout):
    book, plan, found = parts(tmp_path, 2), Plan("exact", "sage", config=HOST), []
    on_device(lambda transport: train(book, plan.of(book), transport, out=tmp_path / "run"), 2)
    for place, where in enumerate((on_host, on_device)):
        asked = PredictConfig(str(tmp_path / "run"), str(tmp_path / f"{place}.npy"), ("scores",), fanout=fanout)
        where(lambda transport, asked=asked: predict(book, asked, transport), 2)
        found.append(np.load(tmp_path / f"{place}.npy"))
    assert np.allclose(*found, atol=1e-6)


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (Plan("exact", "device.plans:pyg_sage", config=HOST), "for the models gcn, sage and gat"),
        (Plan("vanilla", config=HOST), "aggregated once"),
        (Plan("psc-gcn", options={"cache": "degree", "cache_rows": 0.5}, config=HOST), "aggregated once"),
    ],
    ids=["model", "vanilla", "cache"],
)
def test_what_cannot_stay_there_is_refused(tmp_path, plan, words):
    with pytest.raises(InputError, match=words):
        on_device(lambda transport: plan.train(parts(tmp_path, 1), transport), 1)
