"""Batches made by DAGs of tasks: those of one thread to the bit, with any scheduler, chunk and number of threads."""

from __future__ import annotations

import gc
import threading
import time
import weakref

import pytest
import torch
from exactly import config, run
from graphs import community_graph, cut

from isthmus.comm import Hub
from isthmus.engine import train
from isthmus.engine.stop import Stop
from isthmus.errors import InputError, Stopped
from isthmus.minibatch import (
    BatchConfig,
    BatchPolicy,
    DagPolicy,
    NodeData,
    Pipeline,
    batch_maker,
    make_scheduler,
    sampling_dag,
)
from isthmus.minibatch.dag import _Instance
from isthmus.minibatch.pool import Pool, Task
from isthmus.minibatch.scheduler import MOST, CpuUse, Fifo, Load, TwoLevel
from isthmus.partition import own_part
from isthmus.recipes import find
from isthmus.report.read import read_runs
from isthmus.report.schedule import schedule as schedule_section
from isthmus.shard.load import as_tensor

STEPS = 9


@pytest.mark.parametrize(
    ("workers", "asked", "policy", "dag"),
    [
        (1, {}, {}, {"scheduler": "two-level", "chunk": 3, "threads": 3}),
        (2, {}, {"cache": None, "share": "position"}, {"scheduler": "fifo", "chunk": 5, "threads": 2}),
        (3, {}, {"ahead": 0}, {"scheduler": "two-level", "threads": 1}),
        (3, {"structure": "owner"}, {"share": "even"}, {"scheduler": "two-level", "chunk": 4, "threads": 2}),
        (1, {"structure": "owner"}, {}, {"scheduler": "fifo", "chunk": 4, "threads": 2}),
        (2, {"way": "together"}, {}, {"scheduler": "two-level", "chunk": 7, "threads": 2}),
    ],
)
def test_batches_are_those_of_one_thread(tmp_path, workers, asked, policy, dag):
    graph = community_graph(directed=True)
    book = cut(graph, workers, "random", tmp_path)
    policy.pop("cache", None)
    batches = BatchPolicy(dag=DagPolicy(**dag, operators="own_operators:Jittery"), **policy)

    def work(transport):
        part = own_part(book, transport.rank, transport.size)
        data = NodeData(as_tensor(part.x), as_tensor(part.y), as_tensor(part.train_mask[:, 0]).nonzero().flatten())
        asks = BatchConfig(13, (3, 2), **asked)
        wanted = batch_maker(book, asks, BatchPolicy(**policy), transport, data, seed=7)
        maker = batch_maker(book, asks, batches, transport, data, seed=7)
        scheduler = make_scheduler(batches.dag.scheduler, 450)
        pipeline = Pipeline(
            sampling_dag(maker, batches, torch.device("cpu")), scheduler, batches.ahead, STEPS + 5, transport
        )
        for step in range(STEPS):
            want, got = wanted.make(step), pipeline.take(step)
            assert (got.step, got.seeds) == (want.step, want.seeds)
            for one, other in ((got.nodes, want.nodes), (got.x, want.x), (got.y, want.y)):
                assert torch.equal(one, other)
            for one, other in zip(got.layers, want.layers, strict=True):
                assert torch.equal(one.edge_index, other.edge_index)
                assert torch.equal(one.nodes, other.nodes)
            assert got.num_bytes > 0
        pipeline.close()  # with batches that nobody takes
        return pipeline.told

    told = Hub(workers).run(work)
    assert all(set(one) == {"queue", "running", "busy", "launched", "held", "waited"} for one in told)


def test_batches_are_freed_when_they_are_let_go(tmp_path):
    book = cut(community_graph(), 1, "random", tmp_path)
    part, policy = own_part(book, 0, 1), BatchPolicy(dag=DagPolicy(chunk=3, threads=2))
    data = NodeData(as_tensor(part.x), as_tensor(part.y), as_tensor(part.train_mask[:, 0]).nonzero().flatten())
    transport = Hub(1).transport(0)
    maker = batch_maker(book, BatchConfig(13, (3, 2)), policy, transport, data, seed=7)
    pipeline = Pipeline(sampling_dag(maker, policy, torch.device("cpu")), TwoLevel(), 2, STEPS, transport)
    gc.collect()
    gc.disable()  # what only a search for cycles would free keeps the memory of many batches from being used again
    try:
        held = [weakref.ref(pipeline.take(step)) for step in range(STEPS)]
        pipeline.close()
        assert not any(one() for one in held)
        assert not any(isinstance(one, _Instance) for one in gc.get_objects())
    finally:
        gc.enable()


def test_runs_are_those_of_distdgl_to_the_bit(tmp_path):
    book = cut(community_graph(), 2, "random", tmp_path)
    asked = config("sage", 0.5, batch_size=13, fanout="4,3,2")
    want = run(book, asked, find("distdgl").policy())
    for given in ({"scheduler": "fifo", "threads": 2}, {"chunk": 8}):
        got = run(book, asked, find("bytegnn").policy(given))
        assert torch.equal(want[0], got[0])
        assert torch.equal(want[1], got[1])


def test_stopped_and_resumed_bit_for_bit_with_another_scheduler(tmp_path):
    book = cut(community_graph(), 2, "random", tmp_path)
    asked = config("gcn", batch_size=13, fanout="4,3,2")
    whole = run(book, asked, find("bytegnn").policy())
    out, stops = tmp_path / "run", [Stop(), Stop()]

    def work(transport, resume=False, **given):
        def watch(line):
            if line["step"] == 3 and not resume:
                stops[transport.rank].signal = 15

        policy = find("bytegnn").policy(given)
        stop = Stop() if resume else stops[transport.rank]
        return train(book, asked, transport, policy=policy, out=out, resume=resume, watch=watch, stop=stop)

    def stopped(transport):
        with pytest.raises(Stopped):
            work(transport)

    Hub(2).run(stopped)
    results = Hub(2).run(lambda transport: work(transport, True, scheduler="fifo"))
    weights = torch.cat([p.detach().flatten() for p in results[0].model.parameters()])
    assert torch.equal(weights, whole[1])
    lines = (out / "worker-0.jsonl").read_text().splitlines()
    assert all('"schedule": {"queue"' in line for line in lines)
    (read,) = read_runs([out])
    assert "Batches that wait, worker 0" in schedule_section([read])


def test_errors_of_operators_reach_the_loop(tmp_path):
    book = cut(community_graph(), 2, "random", tmp_path)
    policy = find("bytegnn").policy({"operators": "own_operators:Failing"})
    with pytest.raises(InputError, match="no seeds today"):
        run(book, config("gcn", batch_size=13, fanout="4,3,2"), policy)


def test_the_launch_score_is_that_of_algorithm_1():
    level, calm = TwoLevel(450.0), Load(queue=1, running=2, busy=50, gap=5, sample=0.1, train=0.1)
    assert level.score(calm) == pytest.approx(5 * 90.95, rel=1e-3)
    assert level.launches(calm)
    assert level.score(calm._replace(busy=100)) == pytest.approx(0, abs=1e-9)
    assert TwoLevel(0.0).launches(calm._replace(busy=100))
    assert not level.launches(calm._replace(queue=2))
    assert level.score(calm._replace(sample=0.0)) == level.score(calm)  # nothing is known yet: balance 1
    starving = Load(queue=0, running=1, busy=100, gap=0, sample=0.1, train=0.1)
    assert level.launches(starving)
    assert not level.launches(starving._replace(running=2))
    assert level.launches(starving._replace(running=2, least=3))
    assert level.pause(starving) == MOST
    assert level.pause(calm._replace(gap=0)) == pytest.approx(0.005, rel=0.02)
    assert Fifo().launches(starving)


def test_earlier_dags_and_cheaper_tasks_first():
    tasks = [Task(2, print, 0.0), Task(1, print, 5.0), Task(1, print, 0.0), Task(1, print, 3.0)]
    ordered = sorted(tasks, key=TwoLevel().key)
    assert [(task.dag, task.cost) for task in ordered] == [(1, 0.0), (1, 3.0), (1, 5.0), (2, 0.0)]


def test_requests_are_made_in_the_order_of_turns():
    made, over = [], threading.Event()
    pool = Pool(2, Fifo().key, requests=2, first=4, failed=made.append)
    for place in ((5, 0), (4, 1), (5, 1)):
        pool.add(Task(place[0], lambda place=place: made.append(place), turn=place))
    pool.add(Task(6, over.set, turn=(6, 0)))
    assert not over.wait(0.02)
    assert not made
    pool.add(Task(4, lambda: made.append((4, 0)), turn=(4, 0)))
    assert over.wait(10)
    assert made == [(4, 0), (4, 1), (5, 0), (5, 1)]
    pool.close(10)


def test_use_of_the_processors_is_a_share():
    use = CpuUse(window=0.02)
    use.percent()
    time.sleep(0.05)
    assert 0 <= use.percent() <= 100


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"scheduler": "lifo"}, "scheduler must be one of two-level, fifo"),
        ({"sigma": -1}, "sigma"),
        ({"chunk": -1}, "chunk must be at least 0"),
        ({"cache": "list"}, "cache must be one of vip, degree"),
    ],
)
def test_refusals(given, word):
    with pytest.raises(InputError, match=word):
        find("bytegnn").policy(given)
