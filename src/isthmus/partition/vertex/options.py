"""The options of a vertex-cut, checked where they are given."""

from __future__ import annotations

from dataclasses import dataclass

from isthmus.errors import InputError

GAMMA = 0.1
MESSAGES = "messages"
HOST_SCORES = (MESSAGES, "as-published")


@dataclass(frozen=True)
class VertexOptions:
    """The options of a vertex-cut; `VertexMethod.takes` names those that a method uses."""

    seed: int = 0
    """The seed of every random choice."""
    tolerance: float = 0.05
    """The bound of a part's edges: max/mean is to stay below 1 + tolerance."""
    hosts: int = 1
    """Machines on which the parts will be trained, in equal blocks of consecutive parts."""
    gamma: float | None = None
    """The weight of replicas on other hosts against replicas in other parts; 0.1 with several hosts, else none."""
    host_score: str = MESSAGES
    """What gamma weighs: messages between hosts, or as published first replicas on another host."""
    tau: float | None = None
    """Nodes with more than tau times the mean degree are not expanded, and their edges among each other are streamed;
    as large as the free memory allows."""

    def __post_init__(self) -> None:
        if not 0 <= self.tolerance <= 1:
            raise InputError(f"tolerance must be in [0, 1], not {self.tolerance}: 0.05 allows 5 % above the mean")
        if self.hosts < 1:
            raise InputError(f"hosts must be at least 1, not {self.hosts}")
        if self.gamma is not None and not 0 <= self.gamma < 1:
            raise InputError(f"gamma must be in [0, 1), not {self.gamma}: the paper's is 0.1")
        if self.gamma and self.hosts == 1:
            raise InputError("gamma weighs replicas on other hosts: say how many there are (--hosts)")
        if self.host_score not in HOST_SCORES:
            raise InputError(f"unknown host_score '{self.host_score}': choose one of {', '.join(HOST_SCORES)}")
        if self.tau is not None and not self.tau > 0:
            raise InputError(f"tau must be above 0, not {self.tau}: it is a multiple of the mean degree")

    @property
    def weight(self) -> float:
        """The gamma in force: without hosts none, with several CDFGNN's 0.1 unless another was given."""
        return self.gamma if self.gamma is not None else GAMMA * (self.hosts > 1)

    def host_of(self, parts: int) -> list[int]:
        """Return the host of every part."""
        if self.hosts > parts:
            raise InputError(f"{parts} parts cannot be on {self.hosts} hosts: ask for at least one part per host")
        return [part * self.hosts // parts for part in range(parts)]
