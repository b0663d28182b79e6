"""The default: full-graph training, equal to one process to the last rounding, with every exact saving."""

from isthmus.local import Savings
from isthmus.recipes.base import Recipe

EXACT = Recipe(
    name="exact",
    summary="whole halo, every step, fresh; narrow side exchanged, input aggregated once, transfer overlapped",
    paper="PSC-GCN eqs. 1–9, BNS-GCN sec. 3.1, with the savings that change nothing",
    savings=Savings(),
)
