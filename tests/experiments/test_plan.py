"""`isthmus plan` as a person meets it, and its bytes against those of real runs. No time is asserted."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest
import torch
from graphs import community_graph, cut

from isthmus import cli, recipes
from isthmus.comm import Hub
from isthmus.engine import TrainConfig, train
from isthmus.errors import InputError
from isthmus.experiments.plan import PlanRequest, plan
from isthmus.experiments.plan.memory import LiveBytes, bytes_of, written
from isthmus.launch import local
from isthmus.launch.gauge import Gauge
from isthmus.nn import ModelConfig
from isthmus.recipes.parse import read_entries

STEPS = 9
SHAPE = ModelConfig("sage", 3, 8)
DRAWN = ("bns rate=0.5", "psc-gcn rate=0.5 least=0", "isthmus rate=0.5 bits_weights=32 guard=off")
SETTLED = (
    "vanilla",
    "exact",
    "exact bits=8",
    "exact bits_weights=8",
    "cagnet",
    "pipegcn",
    "sancus-e",
    "sancus-a",
    "skip-g",
)


@pytest.fixture
def quick(monkeypatch):
    """A gauge without processes."""
    found = Gauge(1e-4, 1e-5, 1e-10, 1e-5, 1e-10, 1e9, 2**20)
    monkeypatch.setattr(local, "start", lambda job, workers: vars(found))


def trained_bytes(book, entry, config) -> dict[str, int]:
    """What a real run of `STEPS` steps sends per step."""
    policy = recipes.find(entry.recipe).policy(entry.options)
    return (
        Hub(book.num_parts)
        .run(lambda transport: train(book, config, transport, policy=policy))[0]
        .summary["bytes_per_step"]
    )


@pytest.mark.parametrize("label", [*SETTLED, *DRAWN])
def test_bytes_are_those_of_a_real_run(tmp_path, quick, label):
    book = cut(community_graph(nodes=300, degree=20), 3, "random", tmp_path)
    config = TrainConfig(model=SHAPE, steps=STEPS, eval_every=STEPS)
    (entry,) = read_entries(label)
    (one,) = plan(PlanRequest([entry], config), book).recipes
    whole = {k: one.bytes_first_step[k] + (STEPS - 1) * one.bytes_per_step[k] for k in one.bytes_per_step}
    real = trained_bytes(book, entry, config)
    if label in DRAWN:
        assert sum(whole.values()) / STEPS == pytest.approx(sum(real.values()), rel=0.03)
    else:
        assert {kind: round(size / STEPS) for kind, size in whole.items()} == real


def test_fewer_workers_than_parts(tmp_path, quick):
    book = cut(community_graph(), 4, "random", tmp_path)
    found = plan(PlanRequest(read_entries("exact"), TrainConfig(model=SHAPE), workers=2, link="1gbit"), book)
    assert (found.workers, found.machines, found.parts) == (2, 2, 4)
    assert found.recipes[0].step_seconds > 0


def test_the_memory_of_accelerators_is_heeded(tmp_path, quick):
    graph = community_graph(features=400)
    book, entries = cut(graph, 2, "random", tmp_path), read_entries("exact")
    asked, on_host = (TrainConfig(model=SHAPE, features_on=place) for place in ("device", "host"))
    found = plan(PlanRequest(entries, asked, device_memory="1GiB"), book)
    one, features = found.recipes[0].on_device, 2 * max(part.inner for part in book.parts) * 400 * 4
    assert one.features_there > features
    assert found.device_memory == 1 << 30
    too_little = f"{one.features_there / 2**10 - 1:.1f}KiB"
    with pytest.raises(InputError, match=r"on an accelerator .*: cut into more --parts, or give --features-on host \("):
        plan(PlanRequest(entries, asked, device_memory=too_little), book)
    assert plan(PlanRequest(entries, asked), book).device_memory is None
    with pytest.raises(InputError, match="cut into more --parts, or a smaller --hidden"):
        plan(PlanRequest(entries, on_host, device_memory="1KiB"), book)


def test_narrow_links_take_longer(tmp_path, quick):
    """The same rehearsed bytes over a link that is so narrow that nothing else counts."""
    book = cut(community_graph(nodes=300, degree=20), 2, "random", tmp_path)
    found = plan(PlanRequest(read_entries("vanilla, exact, isthmus"), TrainConfig(model=SHAPE), link="100kbit"), book)
    vanilla, exact, isthmus = found.recipes
    assert vanilla.step_seconds > vanilla.transfer_seconds > exact.transfer_seconds > isthmus.transfer_seconds
    assert vanilla.transfer_seconds > vanilla.compute_seconds
    assert found.base is vanilla
    assert found.speed_up(exact) == vanilla.step_seconds / exact.step_seconds > 1


def test_memory(tmp_path, quick):
    """More rows, more memory; the machine of several workers holds them all."""
    book = cut(community_graph(), 4, "random", tmp_path)
    narrow, wide = (
        plan(PlanRequest(read_entries("exact"), TrainConfig(model=ModelConfig("sage", 3, hidden))), book).recipes[0]
        for hidden in (8, 512)
    )
    rows = 30 * 512 * 4  # of one layer, of one worker
    assert wide.memory_per_worker - narrow.memory_per_worker > 2 * rows
    assert 3 * narrow.memory_per_worker < narrow.memory_per_machine <= 4 * narrow.memory_per_worker


def test_live_bytes():
    mapped = torch.ones(1000)
    with LiveBytes() as live:
        first = mapped + 1
        assert live.now == 4000
        view = first[:10]
        first.mul_(2)
        mapped.view(10, 100).t()
        assert live.now == 4000
        del first, view
        assert live.now == 0
        torch.zeros(50, dtype=torch.float64)
    assert live.peak == 4000


@pytest.mark.parametrize(("text", "size"), [("16GiB", 2**34), ("1.5 gb", 1_500_000_000), ("512mib", 2**29)])
def test_sizes(text, size):
    assert bytes_of(text) == size


def test_unreadable_size():
    with pytest.raises(InputError, match="like 16GiB"):
        bytes_of("lots")
    assert written(2**34) == "16 GiB"


@pytest.fixture
def isthmus(monkeypatch, capsys, tmp_path):
    """Runs `isthmus plan` in a folder with parts of a small graph; gives (exit status, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    cut(community_graph(), 2, "random", tmp_path).folder.rename("parts")

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["isthmus", "plan", *arguments, "--hidden", "8", "--quiet"])
        with pytest.raises(SystemExit) as end:
            cli.main()
        said = capsys.readouterr()
        return int(end.value.code or 0), said.out, said.err

    return call


def test_every_recipe_of_a_graph(isthmus, quick):
    """A graph is cut for the plan, and nothing of that stays."""
    before = sorted(Path().iterdir())
    status, said, told = isthmus("synthetic:flickr@0.01", "--parts", "3", "--link", "1gbit", "--json", "--steps", "1")
    assert status == 0, told
    found = json.loads(said.splitlines()[-1])
    wanted = [
        name for name, recipe in recipes.RECIPES.items() if recipe.plane == "full-graph" and recipe.cut != "vertex"
    ]
    assert [one["recipe"] for one in found["recipes"]] == wanted
    assert (found["workers"], found["machines"], found["link"]) == (3, 3, "1gbit")
    for one in found["recipes"]:
        assert one["fits"]
        assert min(one["step_seconds"], one["compute_seconds"], one["memory_per_worker"], one["speed_up"]) > 0
        assert one["step_seconds"] * 1.001 >= one["transfer_seconds"] > 0
    assert sorted(Path().iterdir()) == before


def test_table(isthmus, quick):
    two = ("--recipes", "vanilla, bns rate=0.5", "--steps", "1")
    status, said, _ = isthmus("parts", *two, "--link", "1gbit", "--testbed")
    assert status == 0
    assert "over links of 1gbit" in said
    assert "bns rate=0.5" in said
    assert "Assumed: 1 machine(s)" in said


def test_commands_of_the_docs(isthmus, quick):
    """Those of docs/plan.md, and the README's."""
    pages = (Path(__file__).parents[2] / name for name in ("docs/plan.md", "README.md"))
    lines = [line for page in pages for line in re.findall(r"^isthmus plan (.*?) *#", page.read_text(), re.MULTILINE)]
    assert len(lines) == 5
    for words in map(shlex.split, lines):  # of all recipes: test_every_recipe_of_a_graph
        few = () if "--recipes" in words else ("--recipes", "vanilla, exact, isthmus")
        status, said, told = isthmus(*words, *few, "--steps", "1")
        assert status == 0, told
        assert "predicted" in said


def test_measured_by_real_processes(isthmus):
    """Nothing replaced: two processes measure what messages cost."""
    status, said, told = isthmus("parts", "--recipes", "exact", "--json", "--steps", "1")
    assert status == 0, told
    gauge = json.loads(said.splitlines()[-1])["gauge"]
    assert min(gauge.values()) >= 0
    assert gauge["bandwidth"] > 0
    assert gauge["memory"] > 50 * 2**20


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--memory", "10KiB"), "any recipe needs"),
        (("--memory", "1.1MiB"), "even exact needs"),
        (("--memory", "much"), "like 16GiB"),
        (("--hosts", "2"), "give --link RATE too"),
        (("--testbed",), "give --link RATE too"),
        (("--link", "1gbit", "--hosts", "3"), "3 hosts but 2 workers"),
        (("--link", "quick"), "like 300mbit"),
        (("--parts", "3"), "has 2 parts, not 3"),
        (("--workers", "3"), "has 2 parts but 3 workers"),
        (("--method", "ldg"), "is already cut"),
        (("--steps", "0"), "steps must be at least 1"),
        (("--recipes", "isthmus auto=true"), "measures the link while it trains"),
    ],
)
def test_refusals(isthmus, quick, options, word):
    status, said, complaint = isthmus("parts", "--recipes", "exact", *options)
    assert (status, said) == (2, "")
    assert word in complaint
    assert complaint.count("\n") == 1


def test_what_fits_is_planned_beside_what_does_not(isthmus, quick):
    """Between the memory of the two recipes there is a limit that only one of them meets."""
    asked = ("parts", "--recipes", "exact, isthmus", "--steps", "1", "--json")
    sizes = [one["memory_per_machine"] for one in json.loads(isthmus(*asked)[1].splitlines()[-1])["recipes"]]
    assert sizes[0] != sizes[1]
    status, said, _ = isthmus(*asked, "--memory", f"{sum(sizes) // 2}B")
    assert status == 0
    assert [one["fits"] for one in json.loads(said.splitlines()[-1])["recipes"]] == [
        size <= sum(sizes) // 2 for size in sizes
    ]
    _, table, _ = isthmus(*asked[:-1], "--memory", f"{sum(sizes) // 2}B")
    assert "does not fit" in table
