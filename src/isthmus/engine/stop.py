"""The wish that a run ends early: any worker may have it, and all learn of it at the same step."""

from __future__ import annotations

import signal
from dataclasses import dataclass


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
