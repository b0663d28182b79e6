r"""The effect of lossy rows on a step: how far the gradient of the weights is from the exact one.

.. math:: \|g - g_{exact}\| \,/\, \|g_{exact}\|

over all weights and workers, for the same weights, step and dropout masks. It is the truth, and costs one exact pass:
steps of probing alone (``--probe-every``) know it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from isthmus.comm import PROBE, Where
from isthmus.local import Runtime
from isthmus.local.exact_pass import exact_pass


def can_measure(run: Runtime) -> bool:
    """Return whether an exact pass can be made beside that of a recipe, and is worth it."""
    alone = run.transport.size == 1 or run.whole.replicated or run.loss_scale is not None
    return not alone and not run.asked.lossless


def exact_gradients(model: nn.Module, run: Runtime, step: int, walk: Callable[[], object]) -> list[Tensor]:
    """Return the exact gradients of all weights, summed over the workers; ``walk`` runs forward and backward.

    The model is left as it was: its buffers, its gradients (none), and the state of torch's random numbers.
    """
    buffers = [buffer.clone() for buffer in model.buffers()]
    with torch.random.fork_rng(devices=[]), exact_pass(run):
        walk()
    with torch.no_grad():
        for buffer, old in zip(model.buffers(), buffers, strict=True):
            buffer.copy_(old)
    found = gradients_of(model)
    flat = torch.cat([gradient.flatten() for gradient in found])
    run.transport.all_reduce(flat, Where("weights", "reduce", step, PROBE))
    model.zero_grad(set_to_none=True)
    run.transport.release()
    return [part.view_as(like) for part, like in zip(flat.split([g.numel() for g in found]), found, strict=True)]


def gradients_of(model: nn.Module) -> list[Tensor]:
    """Return the gradients of all weights that learn, zeros where there is none."""
    return [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters() if p.requires_grad]


def distance(model: nn.Module, exact: list[Tensor]) -> float:
    """Return the relative distance of the model's gradients from the exact ones."""
    mine, right = (torch.cat([one.flatten() for one in each]).double() for each in (gradients_of(model), exact))
    size = float(right.norm())
    return float((mine - right).norm()) / size if size else 0.0
