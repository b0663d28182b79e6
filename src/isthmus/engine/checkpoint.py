"""The state of a run on disk: safetensors and json, written whole or not at all.

All that changes from step to step is here (weights, optimizer, best weights, counters, and of each worker what its
channels hold), and every random draw is a function of (seed, step), so a resumed run goes on bit for bit.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from isthmus.errors import InputError

KEEP = 2  # newest checkpoints that stay, besides step 0


@dataclass
class Progress:
    """How far a run has come."""

    step: int = 0
    best_step: int = 0
    best: dict[str, float] = field(default_factory=dict)  # scores at the best validation score
    waited: int = 0  # evaluations since then


def save_worker(run: Path, step: int, rank: int, state: dict[str, Tensor]) -> None:
    """A worker's own share of a checkpoint; `save` makes the whole of it visible when all have written theirs."""
    building = _building(run, step)
    building.mkdir(parents=True, exist_ok=True)
    save_file(_contiguous(state), building / _worker_file(rank))


def save(
    run: Path,
    progress: Progress,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    best: dict[str, Tensor],
    identity: dict[str, Any],
) -> None:
    """Writes ``checkpoints/step-N``; `identity` is what a resumed run must share with this one."""
    folder = run / "checkpoints" / f"step-{progress.step}"
    building = _building(run, progress.step)
    building.mkdir(parents=True, exist_ok=True)
    state, groups = _flatten(optimizer.state_dict())
    save_file(_contiguous(model.state_dict()), building / "model.safetensors")
    save_file(_contiguous(state), building / "optimizer.safetensors")
    save_file(_contiguous(best), building / "best.safetensors")
    text = json.dumps({"progress": asdict(progress), "optimizer": groups, "identity": identity}, indent=1)
    (building / "state.json").write_text(text)
    for file in building.iterdir():
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
    if folder.exists():
        shutil.rmtree(folder)
    building.rename(folder)
    for old in _steps(run)[:-KEEP]:
        if old:
            shutil.rmtree(run / "checkpoints" / f"step-{old}")


def restore(
    run: Path, model: nn.Module, optimizer: torch.optim.Optimizer, identity: dict[str, Any]
) -> tuple[Progress, dict[str, Tensor]]:
    """The newest checkpoint of a run, put into model and optimizer; returns its progress and the best weights."""
    steps = _steps(run)
    if not steps:
        raise InputError(f"{run} has no checkpoint to resume from: start it without --resume")
    folder = run / "checkpoints" / f"step-{steps[-1]}"
    try:
        state = json.loads((folder / "state.json").read_text())
        weights = load_file(folder / "model.safetensors")
        tensors = load_file(folder / "optimizer.safetensors")
        best = load_file(folder / "best.safetensors")
    except (OSError, ValueError, SafetensorError) as error:
        raise InputError(
            f"{folder} is damaged ({error}): delete it, and --resume goes on from the checkpoint before it"
        ) from error
    for name, value in identity.items():
        if state["identity"].get(name) != value:
            raise InputError(
                f"{run} was begun with {name} = {state['identity'].get(name)!r}, not {value!r}: "
                f"resume with the same options, or start another run with --out"
            )
    model.load_state_dict(weights)
    optimizer.load_state_dict(_unflatten(tensors, state["optimizer"]))
    return Progress(**state["progress"]), best


def restore_worker(run: Path, step: int, rank: int) -> dict[str, Tensor]:
    """What `save_worker` saved."""
    file = run / "checkpoints" / f"step-{step}" / _worker_file(rank)
    try:
        return load_file(file)
    except (OSError, ValueError, SafetensorError) as error:
        raise InputError(
            f"{file} cannot be read ({error}): if workers run on several machines, --out must be a folder they share; "
            f"if it is damaged, delete {file.parent}, and --resume goes on from the checkpoint before it"
        ) from error


def _worker_file(rank: int) -> str:
    return f"worker-{rank}.safetensors"


def _building(run: Path, step: int) -> Path:
    """Where a checkpoint is written until it is whole. All workers know the name."""
    return run / "checkpoints" / f".step-{step}"


def read_best(run: Path) -> tuple[Progress, dict[str, Tensor], dict[str, Any]]:
    """Progress, best weights and identity of the newest checkpoint, for using a run's model without its optimizer."""
    steps = _steps(run)
    if not steps:
        raise InputError(f"{run} has no checkpoint: give the folder of a run that was trained")
    folder = run / "checkpoints" / f"step-{steps[-1]}"
    try:
        state = json.loads((folder / "state.json").read_text())
        return Progress(**state["progress"]), load_file(folder / "best.safetensors"), state["identity"]
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise InputError(f"{folder} is damaged ({error}): delete it, and the checkpoint before it is used") from error


def _steps(run: Path) -> list[int]:
    folders = (run / "checkpoints").glob("step-*") if (run / "checkpoints").is_dir() else ()
    return sorted(int(folder.name.removeprefix("step-")) for folder in folders)


def _contiguous(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().contiguous().clone() for name, tensor in tensors.items()}


def _flatten(state: dict[str, Any]) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
    """An optimizer's tensors by "parameter/name", and its parameter groups, which are plain json."""
    entries = [(f"{k}/{name}", v) for k, values in state["state"].items() for name, v in values.items()]
    return {key: torch.as_tensor(v) for key, v in entries if v is not None}, state["param_groups"]


def _unflatten(tensors: dict[str, Tensor], groups: list[dict[str, Any]]) -> dict[str, Any]:
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        parameter, name = key.split("/", 1)
        state.setdefault(int(parameter), {})[name] = tensor
    return {"state": state, "param_groups": groups}
