"""The scale of the loss in fp16: it lifts gradients that fp16 would round to zero, as torch's GradScaler does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from isthmus.errors import InputError

GROWTH, BACKOFF, INTERVAL = 2.0, 0.5, 2000  # after so many steps without an overflow the scale grows
LEAST = 2.0**-24


@dataclass
class LossScale:
    """The scale, and the number of steps since it last changed; the same on every worker.

    Workers decide by the sum of their gradients, which is the same bits on each, so all skip a step or none.
    """

    scale: float = 2.0**16
    steady: int = 0

    def gradient(self, loss: Tensor, gradient: Tensor | None) -> Tensor:
        """Return the gradient by the loss from which the backward pass begins."""
        return torch.full_like(loss, self.scale) if gradient is None else gradient * self.scale

    @torch.no_grad()
    def unscale(self, parameters: Iterable[nn.Parameter], step: int) -> None:
        """Divide summed gradients by the scale or, if one has overflowed, take all of them away: nothing is updated."""
        had = [parameter for parameter in parameters if parameter.grad is not None]
        gradients = [parameter.grad for parameter in had if parameter.grad is not None]
        finite = not gradients or bool(torch.stack([one.isfinite().all() for one in gradients]).all())
        for parameter, gradient in zip(had, gradients, strict=True):
            parameter.grad = gradient.mul_(1 / self.scale) if finite else None
        self.steady += 1
        if not finite:
            self.scale, self.steady = self.scale * BACKOFF, 0
        elif self.steady == INTERVAL:
            self.scale, self.steady = self.scale * GROWTH, 0
        if self.scale < LEAST:
            raise InputError(
                f"the gradients of step {step} overflow fp16 however small the loss is scaled: take precision=bf16, "
                "lower --lr, or scale the features"
            )

    def state(self) -> dict[str, Any]:
        return asdict(self)

    def restore(self, state: dict[str, Any]) -> None:
        self.scale, self.steady = float(state["scale"]), int(state["steady"])
