"""The request to end a run early: any worker may receive it, and all learn of it at the same step."""

from __future__ import annotations

import shlex
import signal
from dataclasses import dataclass
from pathlib import Path

from isthmus.engine.config import TrainConfig


@dataclass
class Stop:
    """A request to end: ``signal`` is what this worker received; ``agreed`` is set on all workers if any received one.

    It is sent with the sum of the weight gradients, so it costs four bytes per step and no extra message.
    """

    signal: int = 0
    agreed: bool = False

    @property
    def asked(self) -> bool:
        return bool(self.signal)

    @property
    def status(self) -> int:
        """The exit status, as shells have it; SIGTERM's for a worker that learned of the request from another."""
        return 128 + (self.signal or signal.SIGTERM)


def command_to_go_on(run: str | Path, config: TrainConfig) -> str:
    """Return the command that resumes a run; a user's own code has to be named again, all else is in the folder."""
    own = {"model": config.model.model, "loss": config.loss, "metric": config.metric}
    named = [word for name, value in own.items() if value and ":" in value for word in (f"--{name}", value)]
    return shlex.join(["isthmus", "train", "--resume", str(run), *named])
