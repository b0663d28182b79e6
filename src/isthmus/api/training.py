"""The functions ``isthmus.train`` and ``isthmus.predict``: the commands of these names with options as keywords."""

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

    ``source`` is a parts folder, the book that ``isthmus.partition`` returns, or anything that ``isthmus.load`` reads
    (a path, a name, a PyG ``Data`` object, a ``Graph``), which is cut into ``workers`` parts in the run folder. The
    options are those of the command ``isthmus train``. Under torchrun or srun this process joins the existing workers.
    With ``resume=True``, ``source`` may be a run folder, and options that are not given are those of the run.

    >>> result = isthmus.train("synthetic:flickr@0.1", workers=3, model="sage")
    >>> result.scores["test"]
    """
    source, given = with_options_of_run(source, options)
    asked = complete(given)
    recipe = recipes.find(asked["recipe"])
    config = config_of(asked, recipe)
    if config.model.model not in MODELS:
        own_model(config.model.model)  # refuse before any work is done
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

    ``out`` ends in .npy, .parquet or .csv. For a run with your own model give ``model``, its name, class or function,
    again, since a run folder may come from anybody; ``trust=True`` runs the one that the folder names. Returns a
    summary: ``rows``, ``files``, ``seconds`` …
    """
    if isinstance(run, TrainResult) and model is None:
        model = run.summary["model"]["model"]  # the caller named it for training
    folder = run.run if isinstance(run, TrainResult) else run
    names = tuple(name.strip() for name in (what.split(",") if isinstance(what, str) else what))
    listed, moved = (None if path is None else os.fspath(path) for path in (nodes, parts))
    named = None if model is None else importable(model)
    asked = PredictConfig(os.fspath(folder), os.fspath(out), names, listed, overwrite, named, trust)
    return launch_prediction(asked, moved, workers, threads, timeout)
