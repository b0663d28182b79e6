"""DistGNN, literally: cd-r on dense matrices, part after part; the training around it is that of `oracle.cdfgnn`."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from oracle.cdfgnn import Cdfgnn


@dataclass
class Distgnn(Cdfgnn):
    staleness: int = 5
    warm: bool = True
    posted: dict[tuple[str, int, str, int], np.ndarray] = field(default_factory=dict)  # by pass, layer, leg and step

    def synchronise(self, pass_: str, layer: int, z: list[np.ndarray]) -> list[np.ndarray]:
        """Masters add the sums that mirrors made r steps ago; mirrors take the totals that masters had r steps ago."""
        parts = len(z)
        mirror = self.replica & (self.owner != np.arange(parts)[:, None])
        sums = sum(z[i] * mirror[i][:, None] for i in range(parts))
        own = sum(z[i] * (self.owner == i)[:, None] for i in range(parts))
        late = self.late(pass_, layer, "gather", sums)
        total = own if late is None else own + late
        told = self.late(pass_, layer, "scatter", total)
        return [
            np.where((self.owner == i)[:, None], total, z[i] if told is None else told) * self.replica[i][:, None]
            for i in range(parts)
        ]

    def late(self, pass_: str, layer: int, leg: str, rows: np.ndarray) -> np.ndarray | None:
        """Send rows; return those that are due, if any."""
        self.posted[pass_, layer, leg, self.step] = rows
        of = self.step - self.staleness
        return self.posted.get((pass_, layer, leg, max(of, 0) if self.warm else of))
