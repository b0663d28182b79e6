"""Watch the error of rows: owners compare sampled boundary rows with what readers hold of them.

Nothing crosses a link for it: an owner sends the sampled rows of every site to itself, through the recipe's own stages
(`comm.channel.echo`), and compares what a reader would hold at a step with the rows of that step. The sums of squares
travel in the message that sums the gradients of the weights. So the error is known at every step, also while a guard
(`local.guard`) has rows sent exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm import BACKWARD, FORWARD, GATHER, SCATTER, Links, Stages
from isthmus.comm.channel.echo import Echo
from isthmus.comm.channel.state import restore, state_of
from isthmus.local.policy import Policy
from isthmus.shard import Shard

ROWS = 256  # of a site and worker that are watched, if it has more: an error is known as well from these as from all
_SALT = 0xEC0
Place = tuple[int, str]  # site and pass


@dataclass
class _Watched:
    """The sampled rows of one site and pass."""

    echo: Echo
    rows: Tensor  # int64 [s]: their numbers among the rows that are sent from
    readers: dict[int, Tensor]  # by links, where they last: the number of readers of each row, [s]


class Watch:
    """The sampled rows of every site, and the errors of a step."""

    def __init__(self, whole: Shard, policy: Policy, rank: int, seed: int):
        self.whole, self.policy, self.rank, self.seed = whole, policy, rank, seed
        self.watched: dict[Place, _Watched] = {}
        self.errors: dict[str, float] = {}  # of the last step, over all workers: ‖held − fresh‖ / ‖fresh‖
        self.masked: set[int] = set()  # sites whose rows differ from step to step by dropout alone
        self.begin(0, False)

    def begin(self, step: int, watching: bool) -> None:
        """Begin a pass."""
        self.step, self.watching = step, watching
        self.sums: dict[Place, tuple[Tensor, Tensor]] = {}  # of squares: held − fresh, and fresh

    def sees(self, pass_: str) -> bool:
        """Return whether rows of a pass are watched: not where they always are fresh and as they were sent."""
        stages = self._stages(pass_)
        lossy = stages.mixes_steps or not stages.encode.as_is
        return self.watching and lossy and not stages.clip and not (pass_ == BACKWARD and self.policy.sampler)

    def sample(self, site: int, pass_: str, among: Links) -> Tensor:
        """Return the numbers of the rows (int64 [s]) of a site that are watched, of those that links carry."""
        return self._watched(site, pass_, among).rows

    def compare(
        self, site: int, pass_: str, make: Callable[[int], Tensor], among: Links, links: Links | None = None
    ) -> None:
        """Compare rows with what readers hold of them; ``make(step)`` gives the sampled rows, to be read at that step.

        ``among``: the rows that can cross; ``links``: those that are read at this step, if the graph was drawn.
        """
        watched = self._watched(site, pass_, among)
        echo, fresh = watched.echo, make(self.step)
        for due in echo.dues(self.step):
            echo.post(self.step, fresh if due == self.step else make(due), echo.links, "echo", due)
        held, readers = echo.take(self.step), self._readers(watched, pass_, among if links is None else links)
        if held is None:
            self.sums[site, pass_] = (fresh.new_zeros(()),) * 2
            return
        fresh = fresh.float()
        gap = (held.float() - fresh).square_().sum(1)
        self.sums[site, pass_] = gap @ readers, torch.linalg.vector_norm(fresh, dim=1).square_() @ readers

    # Over all workers

    def figures(self) -> dict[str, float]:
        """Return this worker's sums of squares, by name, to be summed over the workers."""
        if not self.sums:
            return {}
        values = torch.stack([torch.stack(sums).double() for sums in self.sums.values()]).tolist()
        named = zip(self.sums, values, strict=True)
        return {f"{kind} {site} {pass_}": v for (site, pass_), two in named for kind, v in zip(KINDS, two, strict=True)}

    def observe(self, told: Mapping[str, float]) -> None:
        """Take the sums over all workers, from which the errors follow."""
        gap, size = (f"{kind} " for kind in KINDS)
        sums = {name.removeprefix(gap): value for name, value in told.items() if name.startswith(gap)}
        self.errors = {
            name: math.sqrt(value / told[size + name]) if told[size + name] else 0.0 for name, value in sums.items()
        }

    @property
    def telling(self) -> dict[str, float]:
        """The errors of the sites whose rows move with the weights alone; of all sites where there is no such one.

        Rows that were made of dropped-out ones have other masks at another step. Like that of a draw, this error is
        every row's own: it averages out over neighbours, and hides how fast the weights move.
        """
        found = {name: error for name, error in self.errors.items() if int(name.split()[0]) not in self.masked}
        return found if any(name.endswith(FORWARD) for name in found) else self.errors

    # Between steps

    def restart(self) -> None:
        """Let all echoes begin anew, as the channels do when the recipe takes over from exact rows."""
        for (site, pass_), watched in list(self.watched.items()):
            self._make(site, pass_, watched.rows)

    def state(self) -> dict[str, Tensor]:
        """Return what echoes hold, by name."""
        found: dict[str, Tensor] = {}
        for (site, pass_), watched in self.watched.items():
            found |= {f"{site}.{pass_}.{name}": tensor for name, tensor in state_of(watched.echo).items()}
            found[f"{site}.{pass_}.rows"] = watched.rows
        return found

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Put a state back."""
        for site, pass_ in {tuple(name.split(".")[:2]) for name in state}:
            mine = f"{site}.{pass_}."
            own = {name.removeprefix(mine): t for name, t in state.items() if name.startswith(mine)}
            watched = self._make(int(site), pass_, own.pop("rows").clone())
            restore(watched.echo, own, watched.echo.links_of)

    def _stages(self, pass_: str) -> Stages:
        return self.policy.stages(pass_, SCATTER if pass_ == FORWARD else GATHER)

    def _watched(self, site: int, pass_: str, among: Links) -> _Watched:
        if (site, pass_) not in self.watched:
            rows = among.boundary_rows
            nodes = self.whole.nodes[rows]
            if pass_ == BACKWARD:
                rows = torch.arange(among.num_mirrors, device=among.device)
                nodes = rows
            return self._make(site, pass_, _sample(rows, nodes, kernels.stream(self.seed, _SALT, site)))
        return self.watched[site, pass_]

    def _make(self, site: int, pass_: str, rows: Tensor) -> _Watched:
        echo = Echo(self._stages(pass_), site, pass_, len(rows), self.rank, self.seed, rows.device)
        self.watched[site, pass_] = _Watched(echo, rows, {})
        return self.watched[site, pass_]

    def _readers(self, watched: _Watched, pass_: str, links: Links) -> Tensor:
        """Return the number of readers of each sampled row, float [s]."""
        if pass_ == BACKWARD:
            return torch.ones(len(watched.rows), device=links.device)
        if id(links) in watched.readers:
            return watched.readers[id(links)]
        count = torch.zeros(self.whole.num_inner, device=links.device)
        for rows in links.send_rows:
            count[rows.long()] += 1
        if links.send_positions is None:  # not drawn: they last
            watched.readers[id(links)] = count[watched.rows]
        return count[watched.rows]


KINDS = "gap", "size"


def _sample(rows: Tensor, nodes: Tensor, stream: int) -> Tensor:
    """Return a few of the rows, drawn by the ids of their nodes."""
    keys = kernels.random_keys(stream, nodes)
    return rows[keys.argsort()[:ROWS].sort().values]
