"""End a worker process."""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def leave(status: int) -> NoReturn:
    """End the process at once, after flushing its output.

    An ordinary exit destroys the C++ objects of torch.distributed while some of its threads may still run, which now
    and then aborts a worker that has done all its work.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
