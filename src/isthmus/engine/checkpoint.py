"""Store the state of a run on disk: safetensors and json, written whole or not at all, and checked before use.

A checkpoint holds all that changes between steps (weights, optimizer, best weights, counters, and the state of each
worker's channels), and every random draw is a function of (seed, step): so a resumed run continues bit for bit.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from isthmus.device import on_host
from isthmus.engine.config import changes
from isthmus.engine.progress import Progress
from isthmus.errors import InputError
from isthmus.files import is_plain_name, read_as, read_json, sha256
from isthmus.files.atomic import publish, writing

_AGAIN = "copy the run folder again, or start another run in another folder"
_SHARED = "if workers run on several machines, --out must be a folder that they share"
NEEDED = {"model.safetensors", "optimizer.safetensors", "best.safetensors", "state.json"}
MAY_CHANGE = ("steps", "epochs", "patience", "cut", "hosts", "features_on", "compile", "structure", "rows")
"""Options of a run that may be other ones when it is resumed: how long it is, and where edges and rows lie."""
KEEP = 2  # newest checkpoints that are kept, besides step 0
_SUMS = "checksums.json"
_AVERAGES = "averages"
_TENSOR = "tensor of this number"
_OTHER_SHAPES = ("row_var", "col_var")  # of Adafactor


class Stateful(Protocol):
    """An optimizer, or what surrounds one (`engine.learning`)."""

    @property
    def param_groups(self) -> Any: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any], /) -> None: ...


@dataclass(frozen=True)
class State:
    """The content of a checkpoint's state.json."""

    progress: Progress
    optimizer: list[dict[str, Any]]
    identity: dict[str, Any]
    workers: int


def save_worker(run: Path, step: int, rank: int, state: dict[str, Tensor]) -> None:
    """Write a worker's own share of a checkpoint; `save` publishes the checkpoint when all shares are written."""
    with building(run, step) as folder:
        save_file(_contiguous(state), folder / _worker_file(rank))


def save_extra(run: Path, step: int, extra: dict[str, Any]) -> None:
    """Write what a user's own loop keeps beside its weights, before `save` publishes the checkpoint."""
    tensors: dict[str, Tensor] = {}

    def plain(value: Any) -> Any:
        if isinstance(value, Tensor):
            tensors[str(len(tensors))] = value
            return {_TENSOR: len(tensors) - 1}
        if isinstance(value, dict):
            return {str(name): plain(one) for name, one in value.items()}
        if isinstance(value, list | tuple):
            return [plain(one) for one in value]
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise InputError(f"extra holds a {type(value).__name__}: it keeps numbers, words, lists, dicts and tensors")

    content = plain(extra)
    with building(run, step) as folder:
        (folder / "extra.json").write_text(json.dumps(content))
        save_file(_contiguous(tensors), folder / "extra.safetensors")


def read_extra(run: Path, step: int) -> dict[str, Any]:
    """Return what `save_extra` wrote; lists in place of tuples, and words for names that were numbers."""
    file = folder_of(run, step) / "extra.json"
    if not file.is_file():
        return {}
    tensors = _load(file.with_suffix(".safetensors"))

    def whole(value: Any) -> Any:
        if isinstance(value, dict):
            if set(value) == {_TENSOR}:
                return tensors[str(value[_TENSOR])]
            return {name: whole(one) for name, one in value.items()}
        return [whole(one) for one in value] if isinstance(value, list) else value

    with fitting(file.parent):
        return whole(read_json(file, _AGAIN))


def save(
    run: Path,
    progress: Progress,
    model: nn.Module,
    optimizer: Stateful,
    best: dict[str, Tensor],
    identity: dict[str, Any],
    workers: int,
) -> None:
    """Write ``checkpoints/step-N``; `identity` is what a resumed run must share with this one."""
    with building(run, progress.step) as folder:
        state, groups = _flatten(optimizer.state_dict())
        save_file(_contiguous(model.state_dict()), folder / "model.safetensors")
        save_file(_contiguous(state), folder / "optimizer.safetensors")
        save_file(_contiguous(best), folder / "best.safetensors")
        about = State(progress, groups, identity, workers)
        (folder / "state.json").write_text(json.dumps(asdict(about), indent=1))
        (folder / _SUMS).unlink(missing_ok=True)
        sums = {file.name: sha256(file) for file in sorted(folder.iterdir())}
        (folder / _SUMS).write_text(json.dumps(sums, indent=1))
        publish(folder, folder_of(run, progress.step))
    done = [step for step in steps(run) if step <= progress.step]
    for step in steps(run):
        if step not in (0, *done[-KEEP:]):  # a later checkpoint was damaged and skipped: remove it
            shutil.rmtree(folder_of(run, step), ignore_errors=True)


def newest(run: Path, note: Callable[[str], None]) -> int:
    """Return the step of the newest intact checkpoint; note the damaged ones and remove unfinished ones."""
    for left in (run / "checkpoints").glob(".step-*"):
        shutil.rmtree(left, ignore_errors=True)
    found = steps(run)
    if not found:
        raise InputError(f"{run} has no checkpoint to resume from: start it without --resume")
    wrong = ""
    for step in reversed(found):
        wrong = damage(folder_of(run, step))
        if not wrong:
            return step
        note(f"{folder_of(run, step)} is damaged ({wrong}) and skipped")
    raise InputError(f"every checkpoint of {run} is damaged (the first: {wrong}): start again with another --out")


def damage(folder: Path) -> str:
    """Return what is wrong with a checkpoint; "" if every file is as it was written."""
    try:
        sums = read_json(folder / _SUMS, _AGAIN)
        if not isinstance(sums, dict) or not all(map(is_plain_name, sums)) or not set(sums) >= NEEDED:
            return f"{_SUMS} does not name its files"
        missing = [name for name in sums if not (folder / name).is_file()]
        if missing:
            return f"{missing[0]} is missing"
        altered = [name for name, said in sums.items() if sha256(folder / name) != said]
    except (InputError, OSError) as error:
        return str(error)
    return "" if not altered else f"{altered[0]} has changed since it was written"


def restore(
    run: Path, step: int, model: nn.Module, optimizer: Stateful, identity: dict[str, Any]
) -> tuple[Progress, dict[str, Tensor], int]:
    """Load a checkpoint into model and optimizer; return its progress, best weights and number of workers."""
    state, weights, tensors, best = _read(run, step, "model", "optimizer", "best")
    before = {name: value for name, value in state.identity.items() if name not in MAY_CHANGE}
    if changed := changes(before, identity):
        cut_anew = any(change.startswith("parts was") for change in changed)
        hint = " (a graph is cut anew for each number of workers: cut it once, and give its parts)" if cut_anew else ""
        raise InputError(
            f"{run} was started with other options: {', '.join(changed)}{hint}: resume with the same options, or start "
            "another run in another folder"
        )
    with fitting(folder_of(run, step)):
        model.load_state_dict(weights)
        optimizer.load_state_dict(_unflatten(tensors, state.optimizer, optimizer))
    return state.progress, best, state.workers


@contextmanager
def fitting(folder: Path) -> Iterator[None]:
    """Report in one line that a checkpoint does not fit the model, the optimizer or the channels."""
    try:
        yield
    except InputError:
        raise
    except (RuntimeError, ValueError, KeyError, IndexError, TypeError, AttributeError):
        # The original messages list every tensor, on many lines.
        raise InputError(f"{folder} does not fit this model: give the model that was trained, or {_AGAIN}") from None


def restore_worker(run: Path, step: int, rank: int) -> dict[str, Tensor]:
    """Return the tensors that `save_worker` saved."""
    return _load(folder_of(run, step) / _worker_file(rank))


def read_best(run: Path) -> tuple[Progress, dict[str, Tensor], dict[str, Any]]:
    """Return progress, best weights and identity of the newest checkpoint, to use the model without its optimizer."""
    found = steps(run)
    if not found:
        raise InputError(f"{run} has no checkpoint: give the folder of a run that was trained")
    wrong = damage(folder_of(run, found[-1]))
    if wrong:
        raise InputError(f"{folder_of(run, found[-1])} is damaged ({wrong}): delete it, and the one before it is used")
    state, best = _read(run, found[-1], "best")
    return state.progress, best, state.identity


def steps(run: Path) -> list[int]:
    """Return the steps that have checkpoints, ascending."""
    names = [path.name for path in (run / "checkpoints").glob("step-*")] if (run / "checkpoints").is_dir() else []
    return sorted(int(name.removeprefix("step-")) for name in names if re.fullmatch(r"step-[0-9]{1,15}", name))


def folder_of(run: Path, step: int) -> Path:
    return run / "checkpoints" / f"step-{step}"


@contextmanager
def building(run: Path, step: int) -> Iterator[Path]:
    """Give the folder in which all workers write a checkpoint until it is complete; remove it if writing fails."""
    folder = run / "checkpoints" / f".step-{step}"
    with writing(folder_of(run, step)):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            yield folder
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise


def _worker_file(rank: int) -> str:
    return f"worker-{rank}.safetensors"


def _read(run: Path, step: int, *names: str) -> tuple[Any, ...]:
    """Return the `State` and the named tensors."""
    file = folder_of(run, step) / "state.json"
    state = read_as(State, read_json(file, _SHARED), str(file), _AGAIN)
    return state, *(_load(file.with_name(f"{name}.safetensors")) for name in names)


def _load(file: Path) -> dict[str, Tensor]:
    if not file.is_file():
        raise InputError(f"{file} is not there, or not an ordinary file: {_SHARED}")
    try:
        return load_file(file)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise InputError(f"{file} cannot be read ({error}): {_SHARED}") from error


def _contiguous(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: on_host(tensor.detach()).contiguous().clone() for name, tensor in tensors.items()}


def _flatten(state: dict[str, Any]) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
    """Return an optimizer's tensors by "parameter/name", and its parameter groups, which are plain json."""
    entries = [(f"{k}/{name}", v) for k, values in state["state"].items() for name, v in values.items()]
    entries += [(f"{_AVERAGES}/{name}", one) for name, one in state.get("averages", {}).items()]
    return {key: torch.as_tensor(v) for key, v in entries if v is not None}, state["param_groups"]


def _unflatten(tensors: dict[str, Tensor], groups: list[dict[str, Any]], optimizer: Stateful) -> dict[str, Any]:
    """Reverse `_flatten`, and check that the state fits this optimizer."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    pairs = zip(groups, optimizer.state_dict()["param_groups"], strict=True)
    state: dict[int, dict[str, Tensor]] = {}
    averages: dict[str, Tensor] = {}
    for key, tensor in tensors.items():
        number, name = key.split("/", 1)
        if number == _AVERAGES:
            averages[name] = tensor
            continue
        of_weights = tensor.ndim and name not in _OTHER_SHAPES
        if of_weights and tensor.shape != parameters[int(number)].shape:
            raise ValueError(f"{key} has another shape")
        state.setdefault(int(number), {})[name] = tensor
    kept = {"averages": averages} if averages else {}
    return {"state": state, "param_groups": [_like(group, own) for group, own in pairs], **kept}


def _like(group: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Return a parameter group read from json in the types of this optimizer's; keep settings that it lacks."""
    found = {**own, **group}
    for name, value in own.items():
        given = tuple(found[name]) if isinstance(value, tuple) and isinstance(found[name], list) else found[name]
        if value is not None and _kinds(given) != _kinds(value):
            raise ValueError(f"{name} is of another type")
        found[name] = given
    if found["params"] != own["params"] or any(isinstance(found[name], list | dict) for name in set(found) - set(own)):
        raise ValueError("another optimizer")
    return found


def _kinds(value: Any) -> Any:
    """Return the type of a setting, or the types of a tuple; int counts as float."""
    if isinstance(value, tuple):
        return tuple(_kinds(one) for one in value)
    return float if isinstance(value, int | float) and not isinstance(value, bool) else type(value)
