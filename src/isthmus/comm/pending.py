"""Transfers under way."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod

from isthmus.comm.ledger import Ledger


class Pending(ABC):
    """A transfer under way. Its buffers belong to it until `wait` returns."""

    def __init__(self, ledger: Ledger):
        self.ledger, self.begun = ledger, time.perf_counter()

    def wait(self) -> None:
        """Wait until every row has arrived and every row has left."""
        asked = time.perf_counter()
        self._wait()
        now = time.perf_counter()
        self.ledger.wait_seconds += now - asked
        self.ledger.under_way_seconds += now - self.begun

    @abstractmethod
    def _wait(self) -> None: ...
