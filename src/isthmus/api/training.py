"""The functions ``isthmus.train`` and ``isthmus.predict``: the commands of these names with options as keywords."""

from __future__ import annotations

import os
from typing import Any, Unpack

from isthmus import recipes
from isthmus.api.keywords import PredictOptions, TrainOptions
from isthmus.api.options import by_names, complete, config_of, importable, options, values_of
from isthmus.api.result import TrainResult
from isthmus.api.resuming import with_options_of_run
from isthmus.api.source import cutter, name_of
from isthmus.engine import PredictConfig
from isthmus.launch.job import Job
from isthmus.launch.start import launch, launch_prediction
from isthmus.nn import MODELS, own_model
from isthmus.options import by_comma, shows
from isthmus.outside import refuse_while_importing


@shows(options("train").values())
def train(source: Any, **given: Unpack[TrainOptions]) -> TrainResult:
    """Train a model on a graph with several workers, which are processes of this machine.

    ``source`` is a parts folder, the book that ``isthmus.partition`` returns, or anything that ``isthmus.load`` reads
    (a path, a name, a PyG ``Data`` object, a ``Graph``), which is cut into ``workers`` parts in the run folder. The
    options are those of the command ``isthmus train``. Under torchrun or srun this process joins the existing workers.
    With ``resume=True``, ``source`` may be a run folder, and options that are not given are those of the run.

    >>> result = isthmus.train("synthetic:flickr@0.1", workers=3, model="sage")
    >>> result.scores["test"]
    """
    refuse_while_importing()
    source, known = with_options_of_run(source, given)
    asked = by_names(complete("train", known))
    recipe = recipes.find(asked["recipe"])
    config = config_of(asked, recipe)
    if config.model.model not in MODELS:
        own_model(config.model.model)  # refuse before any work is done
    asked["out"] = None if asked["out"] is None else os.fspath(asked["out"])
    cut = cutter(source, recipe.way, asked, seed=asked["seed"], quiet=asked["quiet"])
    job = Job("train", name_of(source), config, **values_of(Job, asked))
    return TrainResult(launch(job, name_of(source), asked["workers"], cut, asked["launcher"]))


@shows(options("predict").values())
def predict(
    run: str | os.PathLike[str] | TrainResult,
    out: str | os.PathLike[str],
    *,
    parts: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    **given: Unpack[PredictOptions],
) -> dict[str, Any]:
    """Write class, score or embedding of every node, in original ids, by the best weights of a run.

    ``out`` ends in .npy, .parquet or .csv. For a run with your own model give ``model``, its name, class or function,
    again, since a run folder may come from anybody; ``trust=True`` runs the one that the folder names. Returns a
    summary: ``rows``, ``files``, ``seconds`` …
    """
    refuse_while_importing()
    asked = complete("predict", given)
    if isinstance(run, TrainResult) and asked["model"] is None:
        asked["model"] = run.summary["model"]["model"]  # the caller named it for training
    folder = run.run if isinstance(run, TrainResult) else run
    asked["what"] = by_comma(asked["what"])
    for name in ("nodes", "source"):
        asked[name] = None if asked[name] is None else os.fspath(asked[name])
    asked["model"] = None if asked["model"] is None else importable(asked["model"])
    moved = None if parts is None else os.fspath(parts)
    config = PredictConfig(os.fspath(folder), os.fspath(out), **values_of(PredictConfig, asked))
    return launch_prediction(config, moved, workers, **values_of(Job, asked))
