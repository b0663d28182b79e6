"""Partition-parallel training as the papers' baselines run it: the same numbers as exact, none of its savings."""

from isthmus.local import Savings
from isthmus.recipes.base import Recipe

VANILLA = Recipe(
    name="vanilla",
    summary="whole halo of every layer's input, every step, fresh; nothing saved, nothing overlapped",
    paper="PSC-GCN eqs. 1–9, BNS-GCN sec. 3.1",
    savings=Savings(narrow_side=False, aggregate_once=False, overlap=False),
)
