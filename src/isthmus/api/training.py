"""``isthmus.train`` and ``isthmus.predict``: the commands of these names, whose options are keywords."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, Unpack

from torch import nn

from isthmus import recipes
from isthmus.api.options import TrainOptions, complete, config_of, importable, signature
from isthmus.api.result import TrainResult
from isthmus.api.resuming import with_options_of_run
from isthmus.api.source import cutter, name_of
from isthmus.engine import PredictConfig
from isthmus.launch.job import Job
from isthmus.launch.start import launch, launch_prediction
from isthmus.nn import MODELS, own_model


def train(source: Any, **options: Unpack[TrainOptions]) -> TrainResult:
    """Train a model on a graph with several workers, which are processes of this machine.

    ``source`` is a parts folder, the book that ``isthmus.partition`` returns, or whatever ``isthmus.load`` reads: a
    path, a name, a PyG ``Data`` object, a ``Graph``; these are cut into ``workers`` parts in the run folder first. The
    options are those of the command ``isthmus train``. Under torchrun or srun the workers are those that are there.
    With ``resume=True``, ``source`` may be a run folder, and all that is not given is as the run was begun.

    >>> result = isthmus.train("synthetic:flickr@0.1", workers=3, model="sage")
    >>> result.scores["test"]
    """
    source, given = with_options_of_run(source, options)
    asked = complete(given)
    recipe = recipes.find(asked["recipe"])
    config = config_of(asked, recipe)
    if config.model.model not in MODELS:
        own_model(config.model.model)  # refused before any work is done
    named = {f.name: asked[f.name] for f in fields(Job) if f.name in asked}
    named["out"] = None if asked["out"] is None else os.fspath(asked["out"])
    by = {name: asked[name] for name in ("undirected", "directed", "seed", "quiet")}
    cut = cutter(source, recipe.method, recipe.objective, asked["method"], **by)
    job = Job("train", name_of(source), config, **named)
    return TrainResult(launch(job, name_of(source), asked["workers"], cut, asked["launcher"]))


train.__signature__ = signature(train)  # type: ignore[attr-defined]


def predict(
    run: str | os.PathLike[str] | TrainResult,
    out: str | os.PathLike[str],
    *,
    what: str | Sequence[str] = ("class", "score"),
    nodes: str | os.PathLike[str] | None = None,
    parts: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    model: str | type[nn.Module] | Callable[..., nn.Module] | None = None,
    trust: bool = False,
    workers: int | None = None,
    threads: int | None = None,
    timeout: float = 300.0,
) -> dict[str, Any]:
    """Write class, score or embedding of every node, in original ids, by the best weights of a run.

    ``out`` ends in .npy, .parquet or .csv. A run with a model of one's own wants ``model``, its name, class or
    function, once more, since a run folder may come from anybody; ``trust=True`` runs what the folder names. Returns
    what was done: ``rows``, ``files``, ``seconds`` …
    """
    if isinstance(run, TrainResult) and model is None:
        model = run.summary["model"]["model"]  # which was named when it was trained
    folder = run.run if isinstance(run, TrainResult) else run
    names = tuple(name.strip() for name in (what.split(",") if isinstance(what, str) else what))
    listed, moved = (None if path is None else os.fspath(path) for path in (nodes, parts))
    named = None if model is None else importable(model)
    asked = PredictConfig(os.fspath(folder), os.fspath(out), names, listed, overwrite, named, trust)
    return launch_prediction(asked, moved, workers, threads, timeout)
