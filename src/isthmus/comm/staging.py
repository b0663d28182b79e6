"""Rows of an accelerator on links of hosts: one copy to pinned memory before they leave, one back when they arrive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from isthmus.comm.ledger import Ledger
from isthmus.comm.pending import Pending
from isthmus.device import Copier

Start = Callable[[Sequence[Tensor], Sequence[Tensor]], Pending]  # starts a transfer between tensors of the host


class Staging:
    """The copies on the host of what a device sends and receives.

    Where the device copies by itself, a thread waits for its copies and sends them then: the worker computes on.
    """

    def __init__(self, device: torch.device, rank: int, timeout: float):
        self.copier, self.rank, self.timeout = Copier(device), rank, timeout
        self.thread: ThreadPoolExecutor | None = None

    def exchange(self, ledger: Ledger, start: Start, send: Sequence[Tensor], recv: Sequence[Tensor]) -> Pending:
        """Start a transfer of tensors on the device by way of the host."""
        nothing = torch.empty(0)  # in the place of what this worker would send to itself
        inbox = [tensor if tensor.is_cpu else self.copier.room(tensor) for tensor in recv]
        inbox[self.rank] = nothing
        leaving, complete = self.copier.to_host([*send[: self.rank], nothing, *send[self.rank + 1 :]])
        under_way: Pending | Future[Pending]
        if complete is None:
            under_way = start(leaving, inbox)
        else:
            if self.thread is None:
                self.thread = ThreadPoolExecutor(1, "isthmus-staging")
            under_way = self.thread.submit(_when_complete, complete, start, leaving, inbox)
        return _Staged(ledger, under_way, inbox, recv, self.timeout)

    def close(self) -> None:
        if self.thread is not None:
            self.thread.shutdown(cancel_futures=True)
            self.thread = None


def _when_complete(complete: Callable[[], None], start: Start, leaving: list[Tensor], inbox: list[Tensor]) -> Pending:
    complete()
    return start(leaving, inbox)


class _Staged(Pending):
    """A transfer between hosts whose rows belong on a device."""

    def __init__(
        self,
        ledger: Ledger,
        under_way: Pending | Future[Pending],
        inbox: Sequence[Tensor],
        recv: Sequence[Tensor],
        timeout: float,
    ):
        super().__init__(ledger)
        self.under_way, self.inbox, self.recv, self.timeout = under_way, inbox, recv, timeout

    def _wait(self) -> None:
        begun = self.under_way.result(self.timeout) if isinstance(self.under_way, Future) else self.under_way
        begun._wait()
        for arrived, place in zip(self.inbox, self.recv, strict=True):
            if arrived.numel() and arrived is not place:
                place.copy_(arrived, non_blocking=True)
