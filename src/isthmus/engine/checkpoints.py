"""The protocol of checkpoints: every worker writes its own share, then worker 0 the rest; all restore together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from isthmus.comm import Transport, Where
from isthmus.engine import checkpoint
from isthmus.engine.progress import Progress
from isthmus.local import Runtime


class Shards(Protocol):
    """Rows that nodes learn, or had at earlier steps, of which every worker keeps those of its own nodes."""

    def save(self, run: Path, step: int) -> None: ...
    def restore(self, run: Path, step: int) -> None: ...


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of a run, or of a loop of one's own, in a folder that all workers share."""

    run: Path
    runtime: Runtime
    model: nn.Module
    optimizer: checkpoint.Stateful
    identity: dict[str, Any]
    """What a run that goes on must share with this one."""
    rows: Shards | None = None

    def save(self, progress: Progress, best: dict[str, Tensor], extra: dict[str, Any] | None = None) -> None:
        """Write the state after a step, whole or not at all; worker 0 returns last, when it is there."""
        run, step, runtime, transport = self.run, progress.step, self.runtime, self.runtime.transport
        if runtime.loss_scale is not None:
            progress.scaling = runtime.loss_scale.state()
        if self.rows is not None:
            self.rows.save(run, step)
        if not runtime.stateless:
            checkpoint.save_worker(run, step, transport.rank, runtime.state())
        if self.rows is not None or not runtime.stateless:
            meet(transport, step)
        if transport.rank == 0:
            if extra is not None:
                checkpoint.save_extra(run, step, extra)
            checkpoint.save(run, progress, self.model, self.optimizer, best, self.identity, transport.size)

    def restore(self, step: int) -> tuple[Progress, dict[str, Tensor], int]:
        """Go on from the checkpoint of a step; return its progress, best weights and number of workers.

        What channels held is restored for as many workers only; others fetch it anew.
        """
        run, runtime, transport = self.run, self.runtime, self.runtime.transport
        progress, best, before = checkpoint.restore(run, step, self.model, self.optimizer, self.identity)
        with checkpoint.fitting(run):
            if runtime.loss_scale is not None:
                runtime.loss_scale.restore(progress.scaling)
            if not runtime.stateless and before == transport.size:
                runtime.restore(checkpoint.restore_worker(run, step, transport.rank))
        if self.rows is not None:
            self.rows.restore(run, step)
        return progress, best, before


def meet(transport: Transport, step: int) -> None:
    """Wait until all workers are here."""
    transport.all_reduce(torch.zeros(1), Where("checkpoint", "reduce", step))
