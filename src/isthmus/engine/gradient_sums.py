"""Sums of the weights' gradients over workers, piece by piece while the backward pass makes the next ones."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from isthmus.comm import Transport, Where
from isthmus.errors import WorkerError

PIECES = 4  # at most: each costs a message, and only the last one is waited for


class _Piece(NamedTuple):
    """Parameters whose gradients are summed in one message."""

    parameters: list[nn.Parameter]
    about: Tensor | None  # figures that go with the last piece
    step: int


class GradientSums:
    """Sums gradients in the order in which the backward pass makes them, that of the parameters from the last on.

    A thread sums them over connections of its own. All workers sum the same pieces in the same order, whether their
    losses reach a parameter or not. Bits are those of one sum of all gradients.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], transport: Transport):
        """Every worker calls it at the same time."""
        self.loop, self.transport = transport, transport.sibling()
        self.pieces = _pieces(parameters)
        self._piece_of = {p: k for k, piece in enumerate(self.pieces) for p in piece}
        self._hooks = [p.register_post_accumulate_grad_hook(self._arrived) for p in parameters]
        self._missing = list(map(len, self.pieces))
        self._queued = self._step = 0
        self._work: queue.SimpleQueue[_Piece | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Tensor | BaseException] = queue.SimpleQueue()
        self._sums: list[tuple[nn.Parameter, Tensor]] = []
        self._thread = threading.Thread(target=self._serve, name="gradients", daemon=True)
        self._thread.start()

    def begin(self, step: int) -> None:
        """Expect the gradients of a step."""
        self._step, self._queued, self._missing = step, 0, list(map(len, self.pieces))

    def finish(self, about: Tensor) -> Tensor:
        """Sum what is left, and some figures [k]; return these. Every parameter has the sum of its gradients then."""
        begun = time.perf_counter()
        while self._queued < len(self.pieces) - 1:
            self._queue()
        self._queue(about)
        result = self._next_result()
        if isinstance(result, BaseException):
            raise result
        for parameter, total in self._sums:
            parameter.grad = total
        self._sums = []
        ledger = self.transport.ledger.take()
        ledger.reduce_seconds = time.perf_counter() - begun
        self.loop.ledger.add(ledger)
        self.loop.sent.update(self.transport.sent)
        self.transport.sent.clear()
        return result

    def _next_result(self) -> Tensor | BaseException:
        limit = self.transport.timeout * (len(self.pieces) + 1)  # each sum may take as long as a message may
        try:
            return self._done.get(timeout=limit)
        except queue.Empty:
            raise WorkerError(
                f"worker {self.transport.rank} waited {limit:g} s for the sum of gradients of step {self._step}"
            ) from None

    def close(self) -> None:
        """End the thread."""
        for hook in self._hooks:
            hook.remove()
        self._work.put(None)

    def _arrived(self, parameter: nn.Parameter) -> None:
        self._missing[self._piece_of[parameter]] -= 1
        while self._queued < len(self.pieces) - 1 and not self._missing[self._queued]:
            self._queue()

    def _queue(self, about: Tensor | None = None) -> None:
        self._work.put(_Piece(self.pieces[self._queued], about, self._step))
        self._queued += 1

    def _serve(self) -> None:
        try:
            while (piece := self._work.get()) is not None:
                self._sum(piece)
        except BaseException as error:  # handed to the loop, which raises it
            self._done.put(error)

    def _sum(self, piece: _Piece) -> None:
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in piece.parameters]
        rest = [] if piece.about is None else [piece.about]
        flat = torch.cat([*(gradient.flatten() for gradient in gradients), *rest])
        self.transport.all_reduce(flat, Where("weights", "reduce", piece.step, "weights"))
        sizes = [gradient.numel() for gradient in gradients]
        parts = flat.split([*sizes, len(flat) - sum(sizes)])
        self._sums += [(p, part.view_as(p)) for p, part in zip(piece.parameters, parts, strict=False)]
        if piece.about is not None:
            self._done.put(parts[-1])


def _pieces(parameters: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Group parameters, from the last on, into a few pieces of about the same size."""
    least, pieces, size = sum(p.numel() for p in parameters) / PIECES, list[list[nn.Parameter]]([[]]), 0
    for parameter in reversed(parameters):
        if size >= least:
            pieces.append([])
            size = 0
        pieces[-1].append(parameter)
        size += parameter.numel()
    return pieces
