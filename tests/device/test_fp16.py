"""Training in fp16 with a scaled loss: like fp32 to rounding, and an overflow skips the step on all workers alike."""

from __future__ import annotations

import pytest
import torch
from device.plans import Plan, on_device, on_host, parts
from products import each_value

from isthmus import recipes
from isthmus.engine import train
from isthmus.errors import InputError
from isthmus.local import loss_scale
from isthmus.local.loss_scale import LossScale

FP16, SINGLE = {"precision": "fp16"}, {"dtype": "float32", "steps": 6, "eval_every": 2}


def begin_with(monkeypatch, scale):
    monkeypatch.setattr(LossScale, "__init__", lambda self: self.restore({"scale": scale, "steady": 0}))


def trained(book, plan, steps=6, **options):
    """The lines and the weights of every worker."""

    def work(transport):
        lines, asked = [], Plan(plan.recipe, plan.model, plan.options, {**plan.config, "steps": steps}).of(book)
        policy = recipes.find(plan.recipe).policy(asked.options)
        model = train(book, asked, transport, policy=policy, watch=lines.append, **options).model
        return lines, [weight.detach().to("cpu") for weight in model.parameters()]

    return on_device(work, book.num_parts)


@pytest.mark.parametrize(
    *each_value(recipe=["exact", "vanilla", "bns", "distdgl"], model=["gcn", "sage", "gat"], workers=[1, 2, 3])
)
def test_fp16_trains_like_fp32(tmp_path, monkeypatch, recipe, model, workers):
    begin_with(monkeypatch, 2.0**8)  # so that no step is skipped
    book = parts(tmp_path, workers, recipe)
    halved = on_device(lambda t: Plan(recipe, model, FP16, SINGLE).train(book, t), workers)
    full = on_host(lambda t: Plan(recipe, model, {}, SINGLE).train(book, t), workers)
    assert halved[0][:6] == pytest.approx(full[0][:6], rel=0.02)
    assert halved[0][:6] != pytest.approx(full[0][:6], rel=1e-6)
    assert all(one == halved[0] for one in halved)


def test_an_overflow_skips_the_step_on_all_workers(tmp_path, monkeypatch):
    """The scale is far too large at first: it is halved until nothing overflows; no weight has moved until then."""
    begin_with(monkeypatch, 2.0**24)
    book, plan = parts(tmp_path, 2), Plan("exact", "sage", FP16, {**SINGLE, "eval_every": 1})
    (lines, weights), (theirs, same) = trained(book, plan, 16)
    scales = [line["loss_scale"] for line in lines]
    skipped = [now < before for before, now in zip([2.0**24, *scales], scales, strict=False)]
    assert 1 < sum(skipped) < 14
    assert scales == [line["loss_scale"] for line in theirs]
    assert all(map(torch.equal, weights, same))
    scores = [(line["train"], line["val"]) for line in lines]
    assert all(scores[step] == scores[step - 1] for step in range(1, 16) if skipped[step])
    assert lines[-1]["loss"] < lines[0]["loss"]


@pytest.mark.parametrize("outcomes", ["xx.....x.x", "........."])
def test_the_scale_is_that_of_torch(monkeypatch, outcomes):
    """Side by side with GradScaler: x is a step whose gradients overflow."""
    monkeypatch.setattr(loss_scale, "INTERVAL", 3)
    mine, torchs = LossScale(), torch.amp.GradScaler("cpu", growth_interval=3)
    weight, other = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    mover, another = (torch.optim.SGD([one], lr=0.5, weight_decay=0.1) for one in (weight, other))
    for step, outcome in enumerate(outcomes):
        size = torch.inf if outcome == "x" else 1.0
        for one, optimizer in ((weight, mover), (other, another)):
            optimizer.zero_grad()
            loss = (one * torch.tensor([size, 2.0])).sum()
            if one is weight:
                torch.autograd.backward([loss], [mine.gradient(loss, None)])
                mine.unscale([one], step)
                optimizer.step()
            else:
                torchs.scale(loss).backward()
                torchs.step(optimizer)
                torchs.update()
        assert mine.scale == torchs.get_scale()
        assert torch.equal(weight, other)


def test_a_run_resumes_with_its_scale(tmp_path, monkeypatch):
    begin_with(monkeypatch, 2.0**18)
    monkeypatch.setattr(loss_scale, "INTERVAL", 3)
    book, plan = parts(tmp_path, 2), Plan("exact", "gcn", FP16, SINGLE)
    whole = trained(book, plan, 8)
    trained(book, plan, 4, out=tmp_path / "run")
    rest = trained(book, plan, 8, out=tmp_path / "run", resume=True)
    assert [line["loss_scale"] for line in rest[0][0]] == [line["loss_scale"] for line in whole[0][0]][4:]
    assert all(map(torch.equal, rest[0][1], whole[0][1]))


def test_gradients_that_always_overflow_end_the_run():
    weight, scale = torch.nn.Parameter(torch.ones(1)), LossScale()
    for step in range(40):
        weight.grad = torch.tensor([torch.inf])
        scale.unscale([weight], step)
    weight.grad = torch.tensor([torch.inf])
    with pytest.raises(InputError, match="step 40 overflow fp16"):
        scale.unscale([weight], 40)


def test_where_there_is_no_fp16_it_is_refused(tmp_path, accelerator, monkeypatch):
    book = parts(tmp_path, 1)
    with pytest.raises(InputError, match="cpu has no fp16 products: take precision=bf16"):
        on_host(lambda t: Plan("exact", "gcn", FP16, SINGLE).train(book, t), 1)
    with pytest.raises(InputError, match="float32"):
        on_device(lambda t: Plan("exact", "gcn", FP16).train(book, t), 1)
    with pytest.raises(InputError, match="keeps earlier gradients"):
        recipes.find("pipegcn").policy(FP16)
    monkeypatch.setattr(accelerator, "get_amp_supported_dtype", lambda: [torch.bfloat16])
    with pytest.raises(InputError, match="shadow:0 has no fp16 products"):
        on_device(lambda t: Plan("exact", "gcn", FP16, SINGLE).train(book, t), 1)
