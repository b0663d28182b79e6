"""Compare the setup of all workers before training, and refuse on all of them if it differs.

Otherwise a learning rate of 0.01 on one worker and 0.5 on another, or an old copy of the parts on one machine, would
silently give a wrong result. Every worker sends its facts to the others; all compare them and raise the same error.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

import isthmus
from isthmus.comm import Transport, Where
from isthmus.device import on_host
from isthmus.engine.config import TrainConfig, flat
from isthmus.errors import InputError
from isthmus.partition import Book

WHERE = Where("agreement", "gather", 0, "ids")
NAMED = 3  # differences that the error names

# The compared facts, in this order, with the remedy for a difference.
REMEDIES = {
    "versions": "install the same versions on every machine",
    "options": "start every worker with the same command",
    "parts": "copy the same parts folder to every machine",
    "weights": "let every worker build the same model from the same code, its weights drawn by torch's own generator",
}


def check_agreement(
    transport: Transport, config: TrainConfig, book: Book, more: Mapping[str, Any] | None = None
) -> None:
    """Refuse to go on unless all workers have the same versions, options and parts; ``more``: further options."""
    options = {**config.as_dict(), **(more or {})}
    compare_facts(transport, {"versions": versions(), "options": options, "parts": _about(book)})


def check_weights(transport: Transport, model: nn.Module) -> None:
    """Refuse to go on unless all workers' models have the same tensors, bit for bit."""
    if transport.size > 1:
        tensors = {name: _described(one) for name, one in model.state_dict().items() if isinstance(one, Tensor)}
        compare_facts(transport, {"weights": tensors})


def check_shapes(transport: Transport, model: nn.Module) -> None:
    """Refuse to go on unless all workers' models have tensors of the same names and shapes."""
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    compare_facts(transport, {"weights": {name: str(list(one.shape)) for name, one in tensors.items()}})


def compare_facts(transport: Transport, facts: Mapping[str, Mapping[str, Any]]) -> None:
    """Send the facts of this worker to all; raise an `InputError` on each of them if some differ."""
    if transport.size == 1:
        return
    told = [json.loads(words) for words in transport.gather_words(json.dumps(facts, default=str), WHERE)]
    for about, remedy in REMEDIES.items():
        differences = _differences([flat(one.get(about, {})) for one in told])
        if differences:
            rest = f" and {len(differences) - NAMED} more" if len(differences) > NAMED else ""
            raise InputError(f"the workers do not agree: {'; '.join(differences[:NAMED])}{rest}: {remedy}")


def versions() -> dict[str, str]:
    """Return the versions on which a result depends, without the suffix of torch's builds for other devices."""
    return {"isthmus": isthmus.__version__, "torch": str(torch.__version__).partition("+")[0]}


def _about(book: Book) -> dict[str, Any]:
    """Return the facts that must be the same in every copy of a parts folder, the simplest first."""
    plain = {name: getattr(book, name) for name in ("name", "nodes", "edges", "features", "classes", "splits", "cut")}
    whole = json.dumps(book.as_dict(), sort_keys=True, default=str)
    digest = hashlib.sha256(whole.encode()).hexdigest()[:16]
    return {**plain, "num_parts": book.num_parts, "fingerprint": book.fingerprint, "book.json": digest}


def _differences(told: Sequence[Mapping[str, Any]]) -> list[str]:
    """Describe each difference between workers; name facts that only some of them have if nothing else differs."""
    names = list(dict.fromkeys(name for one in told for name in one))
    differ = [name for name in names if any(one.get(name, ...) != told[0].get(name, ...) for one in told)]
    shared = [name for name in differ if all(name in one for one in told)]
    return [_sentence(name, told) for name in shared or differ]


def _sentence(name: str, told: Sequence[Mapping[str, Any]]) -> str:
    """Return a sentence such as "lr is 0.01 on worker 0, 2 and 0.5 on worker 1"."""
    ranks: dict[str, list[str]] = {}
    for rank, one in enumerate(told):
        ranks.setdefault(str(one[name]) if name in one else "not there", []).append(str(rank))
    return f"{name} is " + " and ".join(f"{value} on worker {', '.join(who)}" for value, who in ranks.items())


def _described(tensor: Tensor) -> str:
    if is_lazy(tensor):
        return "not made yet"
    content = on_host(tensor.detach()).contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    digest = hashlib.sha256(content).hexdigest()[:8]
    return f"{list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')} ({digest})"
