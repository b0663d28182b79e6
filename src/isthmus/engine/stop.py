"""The wish that a run ends early: any worker may have it, and all learn of it at the same step."""

from __future__ import annotations

import shlex
import signal
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Stop:
    """``signal`` is what asked this worker to end; ``agreed`` is set on all workers when one was asked.

    It travels with the sum of the weight gradients, so it costs four bytes a step and no message.
    """

    signal: int = 0
    agreed: bool = False

    @property
    def asked(self) -> bool:
        return bool(self.signal)

    @property
    def status(self) -> int:
        """The exit status, as shells have it; a worker that only heard of it from another was terminated."""
        return 128 + (self.signal or signal.SIGTERM)


def command_to_go_on(run: str | Path, model: str) -> str:
    """What to type to go on with a run: all else is in its folder, but code of one's own has to be named again."""
    named = ["--model", model] if ":" in model else []
    return shlex.join(["isthmus", "train", "--resume", str(run), *named])
