"""The transport contract: how rows travel between workers.

A transport never waits for ever: each wait has a limit, and its error names the worker, the peer, and the place (site,
pass, step).
"""

from __future__ import annotations

import json
import platform
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from isthmus.comm.backend import DeviceOf, choose_backend, in_words, nccl_is_here
from isthmus.comm.hosts import host_name, in_blocks, numbered
from isthmus.comm.ledger import Ledger, Where
from isthmus.comm.pending import Pending
from isthmus.comm.staging import Staging
from isthmus.device import HOST, is_host
from isthmus.errors import WorkerError

T = TypeVar("T")
_DEVICES = Where("devices", "setup", 0, "ids")


class Transport(ABC):
    """The links of worker `rank` of `size` to the others."""

    def __init__(self, rank: int, size: int, timeout: float):
        self.rank, self.size, self.timeout = rank, size, timeout
        self.ledger = Ledger()
        self.sent: Counter[int] = Counter()  # bytes by peer, over the whole run
        self.transfers = 0  # the number of transfers so far, which numbers them alike on all workers
        self.held: list[_Held] = []
        self.hosts = [0] * size  # of every worker
        self.hosts_given = False  # by the user, not found out
        self.device = HOST
        self.staging: Staging | None = None
        self.way = ""  # how rows of devices travel, in words
        self.host = "127.0.0.1"  # the address of this worker's machine for the others

    def use(self, device: torch.device) -> None:
        """Let this worker compute on a device, and choose with the others how its rows travel; all call it at once."""
        mine = DeviceOf(platform.node(), str(device), nccl_is_here())
        words = json.dumps([host_name(), *mine])
        told = [json.loads(words) for words in self.gather_words(words, _DEVICES)]
        everyone = [DeviceOf(*about) for _, *about in told]
        self.hosts = numbered([host for host, *_ in told])
        backend = choose_backend(everyone)
        self.device, self.way = device, in_words(backend, everyone)
        self.staging = (
            None if is_host(device) or self._connect_devices(backend) else Staging(device, self.rank, self.timeout)
        )

    def on_hosts(self, count: int) -> None:
        """Let workers be on so many hosts, in equal blocks unless other ones of that number were found out."""
        if count != len(set(self.hosts)):
            self.hosts = in_blocks(self.size, count)
        self.hosts_given = True

    def _connect_devices(self, backend: str) -> bool:
        """Connect the devices of all workers directly; return False if only their hosts are connected."""
        return False

    @property
    def peers(self) -> list[int]:
        """The other workers in rank order, starting after this one, so that no worker is everyone's first."""
        return [(self.rank + i) % self.size for i in range(1, self.size)]

    def exchange(
        self,
        send: Sequence[Tensor],
        recv: Sequence[Tensor],
        where: Where,
        *,
        later: bool = False,
        rows: Sequence[int] | None = None,
    ) -> Pending:
        """Send ``send[q]`` to worker q and receive ``recv[q]`` from it, for every q; empty messages do not travel.

        Returns at once. Both ends know the shapes; nothing but the rows travels. Messages about rows ("ids") are short
        and are waited for, so they do not queue behind rows under way. ``later``: not urgent; they leave at the next
        `release`, or when somebody waits for them. ``rows``: the number of rows that each message counts as, if not its
        length.
        """
        for q in self.peers:
            self._count(where, q, len(send[q]) if rows is None else rows[q], send[q])
        self.transfers += 1
        if later:
            self.held.append(_Held(self, partial(self._begin, self.transfers, send, recv, where)))
            return self.held[-1]
        return self._begin(self.transfers, send, recv, where, apart=where.kind == "ids")

    def release(self) -> None:
        """Start the transfers that were held back."""
        held, self.held = self.held, []
        for transfer in held:
            transfer.begin()

    def all_reduce(self, tensor: Tensor, where: Where) -> Tensor:
        """Sum a tensor over the workers, in place, with the same bits on each.

        Every worker adds up one slice, in the order of ranks, and hands the sum out: as many bytes as a ring passes on,
        but two hops instead of 2 (size - 1), and none of them queues behind rows under way. Two workers need one hop
        for as many bytes.
        """
        if self.size == 2:
            first, second = self.stack(tensor, where)
            tensor.copy_(torch.add(first, second))
        elif self.size > 1:
            begun = time.perf_counter()
            slices = list(tensor.view(-1).tensor_split(self.size))
            mine = slices[self.rank]
            shares = [mine if q == self.rank else torch.empty_like(mine) for q in range(self.size)]
            self.exchange_sums(slices, shares, where)
            total = shares[0].clone()
            for share in shares[1:]:
                total += share
            mine.copy_(total)
            self.exchange_sums([total] * self.size, slices, where)
            self.ledger.reduce_seconds += time.perf_counter() - begun
        return tensor

    def all_gather(self, tensor: Tensor, where: Where) -> list[Tensor]:
        """Return the tensors of all workers, of any lengths (first dimension), in rank order."""
        lengths = torch.zeros(self.size, dtype=torch.int64)
        lengths[self.rank] = len(tensor)
        self.all_reduce(lengths, where)
        parts = [tensor.new_empty(int(n), *tensor.shape[1:]) for n in lengths]
        parts[self.rank] = tensor
        self.exchange([tensor] * self.size, parts, where).wait()
        return parts

    def stack(self, tensor: Tensor, where: Where) -> Tensor:
        """Return the tensors of all workers, which have one shape, in rank order, [size, …]: one hop, for few numbers.

        It does not queue behind rows under way.
        """
        every = tensor.new_empty(self.size, *tensor.shape)
        every[self.rank] = tensor
        if self.size > 1:
            begun = time.perf_counter()
            self.exchange_sums([every[self.rank]] * self.size, list(every.unbind()), where)
            self.ledger.reduce_seconds += time.perf_counter() - begun
        return every

    def gather_words(self, words: str, where: Where) -> list[str]:
        """Return the text that every worker passes, in rank order."""
        letters = torch.tensor(list(words.encode()), dtype=torch.uint8)
        return [bytes(one.tolist()).decode() for one in self.all_gather(letters, where)]

    def exchange_sums(self, send: Sequence[Tensor], recv: Sequence[Tensor], where: Where) -> None:
        """Make one hop of a sum: wait for it, but not behind rows under way."""
        for q in self.peers:
            self._count(where, q, 0, send[q])
        self.transfers += 1
        self._hop(self.transfers, send, recv, where)

    def _hop(self, transfer: int, send: Sequence[Tensor], recv: Sequence[Tensor], where: Where) -> None:
        self._begin(transfer, send, recv, where, apart=True)._wait()

    def trade(self, send: Sequence[Tensor], where: Where) -> list[Tensor]:
        """Send each worker a message [n] of any length; return what each sends to me, which has the same dtype.

        It is waited for, but not behind rows under way.
        """
        for q in self.peers:
            self._count(where, q, 0, send[q])
        begun = time.perf_counter()
        self.transfers += 1
        arrived = self._trade(self.transfers, send, where)
        arrived[self.rank] = send[self.rank]
        spent = time.perf_counter() - begun
        self.ledger.wait_seconds += spent
        self.ledger.under_way_seconds += spent
        return [arrived[q] for q in range(self.size)]

    def _trade(self, transfer: int, send: Sequence[Tensor], where: Where) -> dict[int, Tensor]:
        """Send messages of any length; return those of the others. Their lengths go before them."""
        counts = [torch.tensor([len(part)]) for part in send]
        heard = [torch.zeros(1, dtype=torch.int64) for _ in send]
        self._hop(transfer, counts, heard, where)
        arriving = [part.new_empty(int(n)) for part, n in zip(send, heard, strict=True)]
        self.transfers += 1
        self._hop(self.transfers, send, arriving, where)
        return dict(enumerate(arriving))

    def _count(self, where: Where, peer: int, rows: int, message: Tensor) -> None:
        size = message.numel() * message.element_size()
        if size:
            self.ledger.sent(where, peer, rows, size)
            self.sent[peer] += size

    def _begin(
        self, transfer: int, send: Sequence[Tensor], recv: Sequence[Tensor], where: Where, apart: bool = False
    ) -> Pending:
        """Start a transfer, by way of the host if its rows are on a device that has no links of its own."""
        if self.staging is None or all(tensor.is_cpu for tensor in (*send, *recv)):
            return self._exchange(transfer, send, recv, where, apart)

        def start(leaving: Sequence[Tensor], inbox: Sequence[Tensor]) -> Pending:
            return self._exchange(transfer, leaving, inbox, where, apart)

        return self.staging.exchange(self.ledger, start, send, recv)

    @abstractmethod
    def _exchange(
        self, transfer: int, send: Sequence[Tensor], recv: Sequence[Tensor], where: Where, apart: bool = False
    ) -> Pending:
        """Start a transfer. ``apart``: not queued behind rows that were sent before and are still under way."""

    @abstractmethod
    def sibling(self) -> Transport:
        """Return a transport between the same workers with connections, numbers and a ledger of its own.

        A thread that works ahead of the training loop uses it. Every worker asks for it at the same time.
        """

    def close(self) -> None:
        """Give back sockets and threads."""
        if self.staging is not None:
            self.staging.close()

    def late(self, peer: int | None, where: Where) -> WorkerError:
        who = "the others" if peer is None else f"worker {peer}"
        return WorkerError(
            f"worker {self.rank} waited {self.timeout:g} s for {who} ({where}): "
            "look at that worker's own last lines, or raise --timeout if it is only slow"
        )


class _Held(Pending):
    """A transfer that has not begun yet."""

    def __init__(self, transport: Transport, start: Callable[[], Pending]):
        super().__init__(transport.ledger)
        self.transport, self.start = transport, start
        self.under_way: Pending | None = None

    def begin(self) -> None:
        self.under_way = self.start()
        self.begun = self.under_way.begun

    def _wait(self) -> None:
        if self.under_way is None:
            self.transport.release()  # all of them: a peer may wait for another one first
        assert self.under_way is not None, "what is held leaves with the others"
        self.under_way._wait()
