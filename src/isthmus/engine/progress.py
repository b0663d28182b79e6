"""The progress of a run: all that changes from step to step besides tensors."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Progress:
    """The progress of a run: steps done, best scores so far."""

    step: int = 0
    best_step: int = 0
    best: dict[str, float] = field(default_factory=dict)  # scores at the best validation score
    waited: int = 0  # evaluations since then
    rate: float = 1.0  # the learning rate as a share of --lr, where a plateau lowers it
    scaling: dict[str, float] = field(default_factory=dict)  # the loss scale of fp16, and its steps
    stalled: int = 0  # evaluations without a better score since it was lowered
