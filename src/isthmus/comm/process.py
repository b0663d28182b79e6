"""A transport between processes: rows over torch.distributed with gloo, sums over sockets of their own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import torch.distributed as dist
from torch import Tensor

from isthmus.comm.backend import NCCL
from isthmus.comm.connect import connect
from isthmus.comm.ledger import Where
from isthmus.comm.meet import meet
from isthmus.comm.rendezvous import is_loopback
from isthmus.comm.sum_sockets import Astray, Lost, Silent, SumSockets
from isthmus.comm.transport import Pending, Transport
from isthmus.device import HOST
from isthmus.errors import WorkerError


class Processes(Transport):
    """The transport of worker ``rank`` of ``size``, which meets the others at (host, port); owns the process group."""

    def __init__(self, rank: int, size: int, host: str, port: int, timeout: float = 300.0, address: str = ""):
        super().__init__(rank, size, timeout)
        deadline, limit = time.monotonic() + timeout, timedelta(seconds=timeout)
        self.groups: dict[str, tuple] = {}  # by type of device: for rows, and for what does not queue behind them
        self.sums: SumSockets | None = None
        self.siblings: list[_Sibling] = []  # of all, whoever asked for them
        self.store = meet(rank, size, host, port, timeout, address)
        name = str(self.store.stream.getsockname()[0])
        self.host = host if is_loopback(name) else name  # worker 0 reaches its own meeting point by loopback
        self.address = address or self.host

        def link() -> None:
            dist.init_process_group("gloo", store=self.store, rank=rank, world_size=size, timeout=limit)
            self.groups[HOST.type] = None, dist.new_group(timeout=limit)  # the second has its own connections
            self.sums = SumSockets.between(rank, size, self.store, self.address, timeout)

        try:
            connect(rank, size, self.store, link, timeout, deadline)
        except BaseException:
            self.store.leave()
            raise

    def _connect_devices(self, backend: str) -> bool:
        """Make the groups of the devices: one for rows, one for what must not queue behind them. Never run here."""
        if backend != NCCL:
            return False
        limit = timedelta(seconds=self.timeout)
        self.groups[self.device.type] = tuple(dist.new_group(backend=NCCL, timeout=limit) for _ in range(2))
        return True

    def _exchange(
        self, transfer: int, send: Sequence[Tensor], recv: Sequence[Tensor], where: Where, apart: bool = False
    ) -> Pending:
        kind = next((tensor.device.type for tensor in (*send, *recv) if tensor.numel()), HOST.type)
        group = self.groups[kind][apart]
        if kind != HOST.type:
            return self._exchange_devices(group, send, recv, where)
        tag = transfer % (1 << 30)  # concurrent transfers must not be confused
        arriving, leaving = [], []
        for q in self.peers:
            try:
                if recv[q].numel():
                    arriving.append((q, dist.irecv(recv[q], src=q, group=group, tag=tag)))
                if send[q].numel():
                    leaving.append((q, dist.isend(send[q], dst=q, group=group, tag=tag)))
            except RuntimeError as error:
                raise self.broken(q, where, error) from error
        return _Works(self, arriving, leaving, (send, recv), where)

    def _exchange_devices(
        self, group: dist.ProcessGroup, send: Sequence[Tensor], recv: Sequence[Tensor], where: Where
    ) -> Pending:
        """Send from device to device, all messages at once; NCCL has no tags: transfers start alike on all workers."""
        operations = [dist.P2POp(dist.irecv, recv[q], q, group) for q in self.peers if recv[q].numel()]
        operations += [dist.P2POp(dist.isend, send[q], q, group) for q in self.peers if send[q].numel()]
        try:
            works = dist.batch_isend_irecv(operations) if operations else []
        except RuntimeError as error:
            raise self.broken(None, where, error) from error
        return _Works(self, [(None, work) for work in works], [], (send, recv), where)

    def _hop(self, transfer: int, send: Sequence[Tensor], recv: Sequence[Tensor], where: Where) -> None:
        if self.sums is None or not all(tensor.is_cpu for tensor in (*send, *recv)):
            return super()._hop(transfer, send, recv, where)
        with self._explained(where):
            self.sums.exchange(transfer, send, recv, self.timeout)

    def _trade(self, transfer: int, send: Sequence[Tensor], where: Where) -> dict[int, Tensor]:
        if self.sums is None:
            return super()._trade(transfer, send, where)
        with self._explained(where):
            return self.sums.trade(transfer, send, self.timeout)

    @contextmanager
    def _explained(self, where: Where) -> Iterator[None]:
        """Say of errors of the sockets which worker, site and step they are about."""
        try:
            yield
        except Silent as error:
            raise self.late(error.peer, where) from None
        except Astray as error:
            raise WorkerError(
                f"workers {self.rank} and {error.peer} are at different points of the run ({where}; {error}): "
                "let every worker do the same steps, in the same order"
            ) from error
        except Lost as error:
            raise self.broken(error.peer, where, error) from error

    def sibling(self) -> Transport:
        sibling = _Sibling(self)
        self.siblings.append(sibling)
        return sibling

    def broken(self, peer: int | None, where: Where, error: Exception) -> WorkerError:
        """Return the meaning of a backend's error as a `WorkerError`: the peer is late, or gone."""
        text = str(error).lower()
        if "timed out" in text or "timeout" in text:
            return self.late(peer, where)
        who = "another worker" if peer is None else f"worker {peer}"
        return WorkerError(
            f"worker {self.rank} lost {who} ({where}): it has ended; its own last lines say why, "
            f"and --resume goes on from the last checkpoint"
        )

    def close(self) -> None:
        super().close()
        for one in (self, *self.siblings):
            if one.sums is not None:
                one.sums.close()
        if dist.is_initialized():
            dist.destroy_process_group()
        self.store.leave()


class _Sibling(Processes):
    """Connections of their own between the same workers; they end with the elder's process group."""

    def __init__(self, elder: Processes):
        Transport.__init__(self, elder.rank, elder.size, elder.timeout)
        self.host, self.address, self.store, self.siblings = elder.host, elder.address, elder.store, elder.siblings
        limit, name = timedelta(seconds=elder.timeout), f"sums of sibling {len(self.siblings)}"
        try:
            self.groups = {HOST.type: (dist.new_group(timeout=limit), dist.new_group(timeout=limit))}
            self.sums = SumSockets.between(self.rank, self.size, self.store, self.address, self.timeout, name)
        except RuntimeError as error:
            raise elder.broken(None, Where("connections", "setup", 0), error) from error

    def close(self) -> None:
        """Do nothing: the elder closes all connections."""


class _Works(Pending):
    def __init__(self, transport: Processes, arriving: list, leaving: list, buffers: tuple, where: Where):
        super().__init__(transport.ledger)
        self.transport, self.arriving, self.leaving, self.where = transport, arriving, leaving, where
        self.buffers = buffers  # kept alive until the transfer is over

    def _wait(self) -> None:
        limit = timedelta(seconds=self.transport.timeout)
        for peer, work in self.arriving + self.leaving:
            try:
                work.wait(limit)
            except RuntimeError as error:
                raise self.transport.broken(peer, self.where, error) from error
