"""A worker's own share of a sum, held back by the same rule as the shares that others send."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from isthmus.comm.channel.select import Select


class OwnShare:
    """The own rows of masters, as they were when they last moved by enough (CDFGNN alg. 2, lines 12–16)."""

    def __init__(self, select: Select):
        self.select = select.start()
        self.held = torch.empty(0)

    def take(self, rows: Tensor, step: int) -> Tensor:
        """Return the rows [r, F] as they are held: this step's where they have moved, the old ones elsewhere."""
        if not self.held.numel():
            self.held = torch.zeros_like(rows)
        picks = None if self.select.everything(step) else self.select.by_value([rows], [self.held])[0]
        at = slice(None) if picks is None else picks.long()
        self.held[at] = rows[at]
        return self.held

    def state(self) -> dict[str, Tensor]:
        return {"held": self.held} | {f"select.{name}": value for name, value in self.select.state().items()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        self.held = state["held"].clone()
        learnt = {name.removeprefix("select."): t for name, t in state.items() if name.startswith("select.")}
        if learnt:
            self.select.restore(learnt)
