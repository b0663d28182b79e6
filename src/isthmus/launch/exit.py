"""How a worker process ends."""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def leave(status: int) -> NoReturn:
    """Ends the process at once, its output written.

    An ordinary exit destroys the C++ objects of torch.distributed while some of its threads may still run, which now
    and then ends a worker that has done all its work with an abort.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
