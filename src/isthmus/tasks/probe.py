"""Judge embeddings by a linear probe: logistic regression on the training nodes, and what it says of all nodes."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from isthmus.comm import Transport, Where

PENALTY = 0.1  # of the squared weights, beside the mean loss of a training row: public splits have few of those
_STEPS = 200


@torch.enable_grad()
def probe(rows: Tensor, y: Tensor, train: Tensor, classes: int, transport: Transport, step: int) -> Tensor:
    """Return the logits [n, C] that a logistic regression on the training nodes of all workers gives to my rows [n, H].

    ``y`` [n], or [n, C] of several labels, each of which has a regression of its own; ``train``: bool [n]. Columns are
    scaled by the mean and deviation of the training rows; the convex loss is minimised in float64 from zero weights by
    L-BFGS, whose every step sums loss and gradient over the workers. So the result is the same everywhere, and for any
    number of workers but for the rounding of sums.
    """
    where = Where("probe", "reduce", step, "weights")
    rows, known = rows.detach().double(), train.nonzero().flatten()
    sums = torch.cat([rows[known].sum(0), rows.new_tensor([float(len(known))])])
    *_, total = transport.all_reduce(sums, where).split([rows.shape[1], 1])
    count = total.clamp_min(1)
    mean = sums[:-1] / count
    spread = transport.all_reduce((rows[known] - mean).square().sum(0), where) / count
    rows = (rows - mean) / spread.sqrt().clamp_min(1e-12)
    x, labels = rows[known], y[known]
    weight = rows.new_zeros(classes, rows.shape[1] + 1).requires_grad_()
    optimizer = torch.optim.LBFGS([weight], max_iter=_STEPS, tolerance_grad=1e-7, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        logits = functional.linear(x, weight[:, :-1], weight[:, -1])
        if labels.dim() == 1:
            loss = functional.cross_entropy(logits, labels, reduction="sum")
        else:
            loss = functional.binary_cross_entropy_with_logits(logits, labels.double(), reduction="sum") / classes
        (gradient,) = torch.autograd.grad(loss, weight)
        both = torch.cat([loss.detach().view(1), gradient.flatten()])
        both = transport.all_reduce(both, where) / count
        penalised = weight.detach().clone()
        penalised[:, -1] = 0
        weight.grad = both[1:].view_as(weight) + 2 * PENALTY * penalised
        return both[0] + PENALTY * penalised.square().sum()

    optimizer.step(closure)
    return functional.linear(rows, weight[:, :-1], weight[:, -1]).detach()
