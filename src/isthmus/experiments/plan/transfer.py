"""The time that the links alone would need for a step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isthmus.experiments.plan.replay import Cluster
from isthmus.experiments.plan.trace import Post, Trace


def busiest(steps: Sequence[Sequence[Trace]], cluster: Cluster, loopback: float) -> float:
    """Return the seconds per step of the busiest direction of a host's link; without links, of the busiest worker.

    ``steps[w]`` are the traced steps of worker w; `loopback` is the rate in bytes per second where there are no links.
    """
    workers = len(steps)
    crossing = np.zeros((workers, workers))  # bytes from row to column, all steps
    for source, traces in enumerate(steps):
        for event in (event for step in traces for event in step):
            if isinstance(event, Post):
                crossing[source] += event.sizes
    np.fill_diagonal(crossing, 0)
    ends, rate = (range(workers), loopback) if cluster.link is None else (cluster.host, cluster.link)
    belongs = np.equal.outer(np.unique(ends), np.array(ends)).astype(float)  # [hosts, workers]
    between = belongs @ crossing @ belongs.T
    np.fill_diagonal(between, 0)
    return float(max(between.sum(0).max(), between.sum(1).max())) / rate / len(steps[0])
