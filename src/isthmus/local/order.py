"""Decide in which order a layer is computed: rows are multiplied by its weight before they are aggregated, or after."""

from __future__ import annotations

from torch import Tensor

from isthmus.local.runtime import Runtime


def transforms_first(run: Runtime, x: Tensor, width: int) -> bool:
    """Return whether the transform comes before the aggregation: P (X Wᵀ) instead of (P X) Wᵀ; ``width``: rows of W.

    Rows after dropout may be transformed first if others read them at a known later step: the owner uses that step's
    mask. Where readers keep rows longer, they apply the dropout themselves. A layer of a mini-batch has fewer targets
    than sources: unless narrow rows have to cross, the cheaper order is taken, mostly the aggregation first.
    """
    layer = run.next_layer
    if not run.savings.narrow_side or width > x.shape[1]:
        return False
    if layer is not None and (layer.alone or width == x.shape[1]):
        return layer.transforms_first(x.shape[1], width)
    late = run.dropped.get(x)
    if late is None:
        return not run.is_fixed(x)
    return run.row_stages.delay > 0 and width < x.shape[1] and not run.is_fixed(late.before)
