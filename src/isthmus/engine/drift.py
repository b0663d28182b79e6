"""Check that all workers have the same weights, which holds only if every update uses the summed gradients."""

from __future__ import annotations

import torch
from torch import nn

from isthmus.comm import Transport
from isthmus.engine.record import over_workers
from isthmus.errors import InputError

OFTEN = 100  # steps between two checks in a user's own loop
LIMIT = 1e-3  # relative; processors that round differently stay far below it
WAVES = (0.7, 1.9, 2.6)


def check_alike(model: nn.Module, transport: Transport, remedy: str) -> None:
    """Refuse, on all workers at once, models whose weights differ between workers; ``remedy`` ends the error.

    Costs one pass over the weights and one message of a few numbers.
    """
    if transport.size == 1:
        return
    digests = over_workers(digest(model), transport).nan_to_num()  # if all are NaN, the loss reports it
    length = digests[:, 0].max().clamp_min(torch.finfo(digests.dtype).tiny)
    apart = (digests - digests[0]).abs().amax(1) / length
    worst = int(apart.argmax())
    if apart[worst] > LIMIT:
        raise InputError(
            f"the weights of worker {worst} differ from those of worker 0 (by {float(apart[worst]):.1%}): {remedy}"
        )


@torch.no_grad()
def digest(model: nn.Module) -> list[float]:
    """Return the norm of all weights and their dot products with waves; these differ as much as the weights do."""
    square, waves = 0.0, [0.0] * len(WAVES)
    for parameter in model.parameters():
        values = parameter.detach().flatten().double()
        square += float(values @ values)
        place = torch.arange(len(values), dtype=torch.float64, device=values.device)
        for k, wave in enumerate(WAVES):
            waves[k] += float(values @ torch.cos(place * wave))
    return [square**0.5, *waves]
