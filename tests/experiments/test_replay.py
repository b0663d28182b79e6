"""The fluid of messages and cores, with numbers that can be followed by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from isthmus.experiments.plan.replay import Cluster, fair, replay
from isthmus.experiments.plan.trace import Compute, Post, Step, Wait, computing, joined, steadied, steps_of
from isthmus.experiments.plan.transfer import busiest
from isthmus.launch.gauge import Gauge

FREE = Gauge(0.0, 0.0, 0.0, 0.0, per_byte=0.0, bandwidth=1e12, memory=0)
SWAP = [(0, 1000), (1000, 0)]  # bytes of workers 0 and 1 to each other


def apart(workers: int, link: float | None = 1000.0, cores: int = 4) -> Cluster:
    """Each on a machine of its own."""
    return Cluster(range(workers), range(workers), cores, threads=1, link=link)


def seconds(traces, cluster, gauge=FREE) -> list[float]:
    return [times[-1] - times[0] for times in replay([[Step(), *trace, Step()] for trace in traces], cluster, gauge)]


def test_computing_after_waiting_adds_up():
    traces = [[Compute(2.0), Post(1, sizes), Wait(1), Compute(3.0)] for sizes in SWAP]
    assert seconds(traces, apart(2)) == pytest.approx([6.0, 6.0])


def test_computing_while_rows_are_under_way_hides_them():
    """One second of transfer behind three of computing; then behind half a second."""
    for between, expected in ((3.0, 5.0), (0.5, 3.0)):
        traces = [[Compute(2.0), Post(1, sizes), Compute(between), Wait(1)] for sizes in SWAP]
        assert seconds(traces, apart(2)) == pytest.approx([expected] * 2)


def test_delayed_rows_cost_the_longer_of_both():
    """Rows of a step are waited for in the next: steps last as long as the slower of computing and link."""
    for compute, expected in ((0.4, 1.0), (2.5, 2.5)):
        traces = [
            joined([[Step(), Compute(compute), *([Wait(k - 1)] if k > 1 else []), Post(k, sizes)] for k in range(1, 9)])
            for sizes in SWAP
        ]
        begun = replay(traces, apart(2), FREE)
        assert np.diff(begun, axis=1)[:, 3:-1] == pytest.approx(expected)


def test_a_message_waits_for_room_at_its_reader():
    late = [[Post(1, (0, 1000)), Wait(1)], [Compute(5.0), Post(1, (0, 0)), Wait(1)]]
    assert seconds(late, apart(2)) == pytest.approx([6.0, 6.0])


def test_a_message_apart_queues_behind_rows():
    """Of 3000 bytes of rows, 500 fit into the queue: half a second. Then the two share the link. Rows do not queue."""
    traces = [
        [Post(1, sizes), Compute(1.0), Post(2, tuple(size // 10 for size in sizes), apart=True), Wait(2)]
        for sizes in [(0, 3000), (3000, 0)]
    ]
    assert seconds(traces, replace(apart(2), queue=500.0)) == pytest.approx([1.0 + 0.5 + 0.6] * 2)
    assert seconds(traces, apart(2)) == pytest.approx([1.0 + 0.6] * 2)


def test_messages_share_links():
    """Three senders, one reader: its link is the bottleneck. Directions do not disturb each other."""
    into_one = [[Post(1, (0, 0, 0, 0)), Wait(1)], *([[Post(1, (1000, 0, 0, 0)), Wait(1)]] * 3)]
    assert seconds(into_one, apart(4)) == pytest.approx([3.0] * 4)
    assert seconds([[Post(1, sizes), Wait(1)] for sizes in SWAP], apart(2)) == pytest.approx([1.0] * 2)


def test_inside_a_host_there_is_no_link():
    traces = [[Post(1, (0, 1000, 0)), Wait(1)], [Post(1, (0, 0, 0)), Wait(1)], [Post(1, (500, 0, 0)), Wait(1)]]
    together = Cluster([0, 0, 1], [0, 0, 1], 4, 1, 1000.0)
    assert seconds(traces, together) == pytest.approx([0.5, 0.0, 0.5], abs=1e-6)


def test_cores_are_shared_by_those_who_compute():
    """Four workers on two cores; then one that computes longer gets a core of its own in the end."""
    crowd = Cluster([0] * 4, [0] * 4, cores=2, threads=1)
    assert seconds([[Compute(1.0)]] * 4, crowd) == pytest.approx([2.0] * 4)
    assert seconds([*[[Compute(1.0)]] * 3, [Compute(2.0)]], crowd) == pytest.approx([2.0, 2.0, 2.0, 3.0])


def test_moving_bytes_takes_cores():
    """One core, 1 ms per byte at each end: with both ends on it 1000 bytes need 2 seconds of it."""
    costly = replace(FREE, per_byte=1e-3)
    one = [[Post(1, (0, 1000)), Wait(1)], [Post(1, (0, 0)), Wait(1)]]
    assert seconds(one, Cluster([0, 0], [0, 0], cores=1, threads=1), costly) == pytest.approx([2.0, 2.0])
    assert seconds(one, Cluster([0, 0], [0, 0], cores=2, threads=1), costly) == pytest.approx([1.0, 1.0])


def test_latency_and_work_per_message():
    gauge = replace(FREE, latency=0.5, per_message=0.25)
    traces = [[Post(1, sizes), Wait(1)] for sizes in SWAP]
    # Sent and received: 2 × 0.25 of work beside 0.5 of latency, then 1 of transfer.
    assert seconds(traces, apart(2), gauge) == pytest.approx([1.5, 1.5])
    writes = replace(FREE, per_sent_byte=2e-3)
    assert seconds(traces, apart(2), writes) == pytest.approx([2.0, 2.0])


def test_work_aside_slows_computing_down():
    """Half a second of it at each end, on the one core where a worker computes for two."""
    gauge = replace(FREE, aside=0.5)
    traces = [[Post(1, (0, 1)), Compute(2.0)], [Post(1, (0, 0))]]
    crowd = Cluster([0, 0], [0, 0], cores=1, threads=1)
    assert seconds(traces, crowd, gauge)[0] == pytest.approx(3.0)


def test_bytes_move_when_the_work_aside_is_done():
    """Half a second at both ends, then a second on the link."""
    gauge = replace(FREE, aside=0.25)
    traces = [[Post(1, sizes), Wait(1)] for sizes in SWAP]
    assert seconds(traces, apart(2), gauge) == pytest.approx([1.5, 1.5])


def test_what_is_sent_apart_shares_the_link_but_not_the_queue():
    """4000 bytes are under way when 500 set out: behind them they would be there after 4.5 seconds."""
    for way, expected in ((False, 4.5), (True, 1.0)):
        mine, theirs = [Post(1, (0, 4000)), Post(2, (0, 500), way)], [Post(1, (0, 0)), Post(2, (0, 0), way)]
        assert seconds([[*mine, Wait(2)], [*theirs, Wait(2)]], apart(2)) == pytest.approx([expected] * 2)


def test_fair_shares():
    assert fair(np.array([1.0, 1.0]), 4).tolist() == [1, 1]
    assert fair(np.array([1.0, 1.0, 1.0, 1.0]), 2).tolist() == [0.5] * 4
    assert fair(np.array([0.2, 0.0, 1.0, 1.0]), 2) == pytest.approx([0.2, 0, 0.9, 0.9])


def test_busiest_direction():
    steps = [[[Post(1, (0, 600, 0)), Post(2, (0, 0, 400))]], [[Post(1, (500, 0, 0))]], [[Post(1, (0, 700, 0))]]]
    assert busiest(steps, apart(3, link=100.0), 1e12) == pytest.approx(13.0)  # worker 1 receives 600 + 700
    together = Cluster([0, 0, 1], [0, 0, 1], 4, 1, 100.0)
    assert busiest(steps, together, 1e12) == pytest.approx(7.0)
    assert busiest(steps, apart(3, link=None), 1300.0) == pytest.approx(1.0)


def test_steps_without_hiccups():
    """Steps that do the same are given the same times; others keep their own."""
    plain = [[Step(), Compute(s), Wait(1)] for s in (1.0, 9.0, 2.0)]
    other = [Step(), Compute(7.0), Post(1, (0, 1)), Wait(1)]
    trace = joined([*plain, other])
    assert steps_of(trace) == [*plain, other]
    assert [computing(step) for step in steadied(steps_of(trace))] == [2.0, 2.0, 2.0, 7.0]
