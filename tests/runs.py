"""Small runs with workers that are threads, and predictions of them."""

from __future__ import annotations

from graphs import cut

from isthmus.comm import Hub
from isthmus.engine import PredictConfig, TrainConfig, predict, train
from isthmus.engine.stop import Stop
from isthmus.errors import Stopped
from isthmus.launch.job import run
from isthmus.nn import ModelConfig

SHAPE = ModelConfig(model="sage", hidden=8, layers=2)
ASKED = TrainConfig(model=SHAPE, steps=8, eval_every=2, seed=5)


def trained(graph, workers, folder, config=ASKED, **options):
    """A run: its parts, its folder and its summary."""
    book, out = cut(graph, workers, "random", folder), folder / f"run-{workers}"
    results = Hub(workers).run(lambda transport: train(book, config, transport, out=out, **options))
    return book, out, results[0].summary


def as_threads(job, workers, testbed=None):
    """In the place of `launch.local.start`: the workers are threads of this process."""
    return Hub(workers).run(lambda transport: run(job, transport, workers))[0]


def predicted(book, folder, out, what, **options):
    asked = PredictConfig(str(folder), str(out), what, **options)
    return Hub(book.num_parts).run(lambda transport: predict(book, asked, transport))[0]


def in_folder(book, workers, asked, folder, policy=None, resume=False, stop_at=None):
    """Train in a run folder; ``stop_at``: somebody asks worker 0 to stop at that step."""
    found = []

    def work(transport):
        stop = Stop()

        def watch(line):
            if transport.rank == 0:
                found.append(line["loss"])
                stop.signal = 15 if line["step"] == stop_at else stop.signal

        return train(book, asked, transport, policy=policy, out=folder, resume=resume, watch=watch, stop=stop)

    try:
        result = Hub(workers).run(work)[0]
    except Stopped:
        return found, None
    return found, result
