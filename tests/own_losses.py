"""Losses and a metric of a user's own, which runs name as own_losses:NAME."""

from __future__ import annotations

import torch
from torch.nn import functional

WEIGHTS = torch.tensor([0.2, 1.0, 3.0, 0.5], dtype=torch.float64)


def per_row(logits, y):
    return functional.cross_entropy(logits, y, reduction="none")


def weighed(logits, y):
    w = WEIGHTS[y]
    return (functional.cross_entropy(logits, y, reduction="none") * w).sum(), w.sum()


def a_mean(logits, y):
    return functional.cross_entropy(logits, y)


def a_sum(logits, y):
    return functional.cross_entropy(logits, y, reduction="sum")


def share_right(logits, y):
    return float((logits.argmax(1) == y).double().mean())
