r"""The effect of lossy rows on a step: how far the gradient of the weights is from the exact one.

.. math:: \|g - g_{exact}\| \,/\, \|g_{exact}\|

over all weights and workers, for the same weights, step and dropout masks. It is the truth, and costs one exact pass:
steps of probing alone (``--probe-every``) know it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from isthmus.comm import PROBE, Where
from isthmus.local import Runtime
from isthmus.local.exact_pass import exact_pass


def can_measure(run: Runtime) -> bool:
    """Return whether an exact pass can be made beside that of a recipe, and is worth it."""
    alone = run.transport.size == 1 or run.whole.replicated or run.loss_scale is not None
    return not (alone or run.asked.lossless or run.asked.cache is not None)  # an exact pass reads all halo features


def gradient_error(model: nn.Module, run: Runtime, step: int, passes: Iterable[Callable]) -> float:
    """Return the relative distance of the model's gradients from the exact ones, which ``passes`` make.

    The model is left as it was: its buffers, its gradients, and the state of torch's random numbers.
    """
    found, buffers = [p.grad for p in model.parameters()], [buffer.clone() for buffer in model.buffers()]
    mine = _flat_gradient(model)
    model.zero_grad(set_to_none=True)
    with torch.random.fork_rng(devices=[]), exact_pass(run):
        for walk in passes:
            walk()
    exact = _flat_gradient(model)
    run.transport.all_reduce(exact, Where("weights", "reduce", step, PROBE))
    run.transport.release()
    with torch.no_grad():
        for buffer, old in zip(model.buffers(), buffers, strict=True):
            buffer.copy_(old)
    for parameter, gradient in zip(model.parameters(), found, strict=True):
        parameter.grad = gradient
    size = float(exact.norm())
    return float((mine - exact).norm()) / size if size else 0.0


def _flat_gradient(model: nn.Module) -> Tensor:
    """Return the gradients of all weights that learn in one row, zeros where there is none."""
    learning = [p for p in model.parameters() if p.requires_grad]
    return torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).double().flatten() for p in learning])
