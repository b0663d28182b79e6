"""A transport between workers that are threads of one process: messages are handed over in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from torch import Tensor

from isthmus.comm.hosts import in_blocks
from isthmus.comm.ledger import Where
from isthmus.comm.pending import Pending
from isthmus.comm.transport import Transport
from isthmus.errors import WorkerError

T = TypeVar("T")


class Hub:
    """The meeting place of workers that are threads of one process. `Hub(1).transport(0)` is a single worker."""

    def __init__(self, size: int, timeout: float = 60.0, hosts: int = 1):
        """``hosts``: pretend that workers are on so many hosts, in equal blocks."""
        self.size, self.timeout, self.hosts = size, timeout, in_blocks(size, hosts)
        self.boxes = {(a, b): _Mailbox() for a in range(size) for b in range(size)}
        self.siblings: list[Hub] = []
        self._making = threading.Lock()

    def transport(self, rank: int) -> InProcess:
        return InProcess(self, rank)

    def sibling(self, number: int) -> Hub:
        """Return the hub of the workers' siblings of that number, the same for all of them."""
        with self._making:
            while len(self.siblings) <= number:
                self.siblings.append(Hub(self.size, self.timeout))
            return self.siblings[number]

    def leave(self, rank: int) -> None:
        """Tell everybody that a worker has ended, so that nobody waits for it."""
        for hub in (self, *self.siblings):
            for peer in range(self.size):
                hub.boxes[rank, peer].end()

    def run(self, work: Callable[[Transport], T]) -> list[T]:
        """Run work(transport) on all workers at once; return the results in rank order. The first error ends all."""
        results: list = [None] * self.size
        errors: list[BaseException] = []

        def body(rank: int) -> None:
            try:
                results[rank] = work(self.transport(rank))
            except BaseException as error:
                errors.append(error)
                self.leave(rank)

        threads = [threading.Thread(target=body, args=(rank,), name=f"worker-{rank}") for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return results


class InProcess(Transport):
    """A transport for workers that are threads: messages are handed over in memory."""

    def __init__(self, hub: Hub, rank: int):
        super().__init__(rank, hub.size, hub.timeout)
        self.hub, self.made = hub, 0  # siblings
        self.hosts, self.hosts_given = hub.hosts, True

    def sibling(self) -> InProcess:
        self.made += 1
        return InProcess(self.hub.sibling(self.made - 1), self.rank)

    def _exchange(
        self, transfer: int, send: Sequence[Tensor], recv: Sequence[Tensor], where: Where, apart: bool = False
    ) -> Pending:
        for q in self.peers:
            if send[q].numel():
                self.hub.boxes[self.rank, q].put(transfer, send[q].detach().clone())
        return _Handover(self, transfer, recv, where)

    def _trade(self, transfer: int, send: Sequence[Tensor], where: Where) -> dict[int, Tensor]:
        for q in self.peers:
            self.hub.boxes[self.rank, q].put(transfer, send[q].clone())
        return {q: self.receive(q, transfer, where) for q in self.peers}

    def receive(self, peer: int, transfer: int, where: Where) -> Tensor:
        """Return the message of a transfer, in whatever order transfers are waited for, and by whichever thread."""
        try:
            return self.hub.boxes[peer, self.rank].get(transfer, self.timeout)
        except TimeoutError:
            raise self.late(peer, where) from None
        except EOFError:
            raise WorkerError(f"worker {self.rank} lost worker {peer} ({where}): it has ended") from None


class _Mailbox:
    """The messages from one worker to another that were not taken yet, by the number of their transfer."""

    def __init__(self) -> None:
        self.letters: dict[int, Tensor] = {}
        self.ended, self.turn = False, threading.Condition()

    def put(self, transfer: int, letter: Tensor) -> None:
        with self.turn:
            self.letters[transfer] = letter
            self.turn.notify_all()

    def end(self) -> None:
        """Say that nothing more will come."""
        with self.turn:
            self.ended = True
            self.turn.notify_all()

    def get(self, transfer: int, timeout: float) -> Tensor:
        with self.turn:
            if not self.turn.wait_for(lambda: transfer in self.letters or self.ended, timeout):
                raise TimeoutError
            if transfer not in self.letters:
                raise EOFError
            return self.letters.pop(transfer)


class _Handover(Pending):
    def __init__(self, transport: InProcess, transfer: int, recv: Sequence[Tensor], where: Where):
        super().__init__(transport.ledger)
        self.transport, self.transfer, self.recv, self.where = transport, transfer, recv, where

    def _wait(self) -> None:
        for q in self.transport.peers:
            if self.recv[q].numel():
                came = self.transport.receive(q, self.transfer, self.where)
                if (came.dtype, came.numel()) != (self.recv[q].dtype, self.recv[q].numel()):
                    raise WorkerError(
                        f"worker {self.transport.rank} expects {_described(self.recv[q])} from worker {q} "
                        f"({self.where}), not {_described(came)}"
                    )
                self.recv[q].copy_(came.view_as(self.recv[q]))


def _described(message: Tensor) -> str:
    return f"{tuple(message.shape)} {str(message.dtype).removeprefix('torch.')}"
