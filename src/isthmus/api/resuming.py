"""Read the options of a resumed run from its folder, so that they need not be typed again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from isthmus.api.options import named_settings
from isthmus.api.source import name_of
from isthmus.engine import TrainConfig
from isthmus.engine.run_files import RunFacts
from isthmus.errors import InputError
from isthmus.files import read_json
from isthmus.launch import trackers
from isthmus.launch.events import FOLDER
from isthmus.nn import MODELS, ModelConfig
from isthmus.partition import is_parts_folder
from isthmus.recipes import code_named_by


def with_options_of_run(source: Any, given: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return source and options of training, with those that are not given taken from the run that is resumed.

    ``isthmus train --resume RUN`` gives only the run folder, as the source. Options that are given stay, and are
    compared with the run's when its checkpoint is read.
    """
    options, named = dict(given), "model" in given
    if given.get("steps") is not None and given.get("epochs") is not None:
        raise InputError("steps and epochs say the same in two ways: give --steps or --epochs, not both")
    typed = code_named_by(str(given.get("recipe", "")), named_settings(given.get("set")))
    run = _run_folder(source)
    if run is not None:
        _check_run(run, options)
    elif not options.get("resume") or options.get("out") is None:
        return source, options
    folder = run or Path(os.fspath(options["out"]))
    if not (folder / "config.json").is_file():
        return source, options  # refused later, when the whole folder is checked
    try:
        RunFacts.read(folder)  # checks the types
        begun: dict[str, Any] = read_json(folder / "config.json", "copy the run folder again")
        model = str(begun["model"]["model"])
        if "steps" in options:
            options["epochs"] = None  # in place of those of the run
        options |= {name: value for name, value in _options(begun).items() if name not in options}
        _fill_rest(options, begun, folder)
        parts = next((place for place in (Path(begun["parts"]), folder / "parts") if is_parts_folder(place)), None)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{folder / 'config.json'} is damaged ({error!r}): copy the run folder again") from error
    code = [] if named or model in MODELS else [f"--model {model}"]
    code += [
        f"--{name} {options[name]}"
        for name in ("loss", "metric")
        if name not in given and ":" in str(options.get(name))
    ]
    code += [one for one in code_named_by(begun["recipe"], begun["options"]) if one not in typed]
    if code:  # a folder may come from anybody: code that only it names is not run
        raise InputError(f"{folder} was trained with code of its own: to run that, add {' '.join(code)}")
    if run is None:
        return source, options
    if parts is None:
        raise InputError(
            f"the parts of {run} are no longer at {begun['parts']}: isthmus train PARTS --resume --out {run}"
        )
    return parts, {**options, "out": str(run)}


def _run_folder(source: Any) -> Path | None:
    folder = Path(name_of(source))
    return folder if (folder / "config.json").is_file() and (folder / "checkpoints").is_dir() else None


def _check_run(run: Path, options: Mapping[str, Any]) -> None:
    if not options.get("resume"):
        raise InputError(f"{run} is a run, not a graph: add --resume to go on with it")
    out = options.get("out")
    if out is not None and Path(os.fspath(out)).resolve() != run.resolve():
        raise InputError(f"{run} goes on in its own folder: leave --out out")


def _options(begun: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of train, by their names, that config.json holds."""
    shape = {f.name: begun["model"][f.name] for f in fields(ModelConfig) if f.name in begun["model"]}
    rest = {
        f.name: begun[f.name] for f in fields(TrainConfig) if f.name in begun and f.name not in ("model", "options")
    }
    return {**rest, **shape}


def _fill_rest(options: dict[str, Any], begun: Mapping[str, Any], folder: Path) -> None:
    """Fill in the options that depend on others or on files of the run, unless they are given."""
    if options["recipe"] == begun["recipe"]:
        options["set"] = {**begun["options"], **named_settings(options.get("set"))}
    if options.get("workers") in (None, begun["workers"]):
        options.setdefault("threads", int(begun["threads"]))
    if (folder / FOLDER).is_dir():
        options.setdefault("tensorboard", True)
    if before := trackers.ids(folder):
        options.setdefault("track", ",".join(before))
