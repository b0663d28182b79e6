"""Measure how much must be saved on this link: just enough that transfers are hidden by computing."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from isthmus.comm import Keep, Stages, Transport
from isthmus.engine import TrainConfig
from isthmus.engine.agreement import check_weights
from isthmus.engine.prepare import prepare
from isthmus.engine.record import over_workers
from isthmus.engine.step import train_step
from isthmus.files import read_as, read_json
from isthmus.local import Policy, Savings
from isthmus.partition import Book

_STEPS = 3  # steps per measurement; the first is not counted, since it also sends the features
_ROOM = 0.9  # share of the computing time that transfers may fill
_NEGLIGIBLE = 0.1  # share of the computing time: waiting that is not worth a loss


def _options(staleness: int = 1, sampler: str = "optimal-boundary", rate: float = 0.1, bits: int = 8) -> dict[str, Any]:
    coded = bits < 32
    return {
        "staleness": staleness,
        "sampler": sampler,
        "rate": rate,
        "bits": bits,
        "bits_weights": 8 if coded else 32,
        "delta": coded,
        "precision": "auto" if coded else "fp32",
    }


# Savings in order of their loss: none; freshness; bits, which differences compensate; rows; more bits.
_FRESH = _options(0, "none", 1.0, 32)
_LADDER = [
    (1.0, _options(1, "none", 1.0, 32)),
    (0.27, _options(1, "none", 1.0)),
    (0.135, _options(rate=0.5)),
    (0.068, _options(rate=0.25)),
    (0.027, _options()),
    (0.016, _options(bits=4)),
]


@dataclass(frozen=True)
class Measured:
    """Seconds per step of the slowest worker: computing; waiting for fresh rows; waiting for those of a pipeline."""

    compute: float
    fresh: float
    whole: float


def choose(measured: Measured) -> dict[str, Any]:
    """Return the options that save just enough, and no more."""
    if measured.fresh <= _NEGLIGIBLE * measured.compute:
        return dict(_FRESH)
    for share, options in _LADDER:
        if share * measured.whole <= _ROOM * measured.compute:
            return dict(options)
    return dict(_LADDER[-1][1])


def measure(book: Book, config: TrainConfig, transport: Transport) -> Measured:
    """Time a few steps of a throw-away model without overlap: once exact, once with rows as a pipeline sends them."""
    plain = Savings(overlap=False)
    compute, fresh = _seconds(book, config, transport, Policy(plain))
    _, whole = _seconds(book, config, transport, Policy(plain, Stages(merge=Keep())))
    return Measured(compute, fresh, whole)


def _seconds(book: Book, config: TrainConfig, transport: Transport, policy: Policy) -> tuple[float, float]:
    views, model, optimizer = prepare(book, config, policy, transport)
    check_weights(transport, model)
    compute, wait = [], []
    for step in range(_STEPS):
        transport.ledger.take()
        begun = time.perf_counter()
        train_step(model, optimizer, views.train, book.train[config.split], step)
        taken, ledger = time.perf_counter() - begun, transport.ledger.take()
        wait.append(ledger.wait_seconds)
        compute.append(taken - ledger.wait_seconds - ledger.reduce_seconds)
    slowest = over_workers([min(compute[1:]), min(wait[1:])], transport).max(0).values
    return float(slowest[0]), float(slowest[1])


def settle(book: Book, config: TrainConfig, transport: Transport, run: Path | None, resume: bool) -> TrainConfig:
    """Return the config with ``auto`` replaced by options: measured now, or those of the run that is resumed."""
    if not config.options.get("auto"):
        return config
    if run is not None and resume:
        file, remedy = run / "config.json", "copy it again, or give the options that auto had chosen instead of auto"
        begun_with = read_as(TrainConfig, read_json(file, remedy), str(file), remedy).options
        chosen = {name: begun_with[name] for name in _FRESH if name in begun_with}
    else:
        chosen = choose(measure(book, config, transport))
    return replace(config, options={**config.options, **chosen})
