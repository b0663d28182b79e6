"""Watch the error of rows: owners compare sampled boundary rows with what readers hold of them.

Nothing crosses a link for it: an owner sends the sampled rows of every site to itself, through the recipe's own stages
(`comm.channel.echo`), and compares what a reader would hold at a step with the rows of that step. The sums of squares
travel in the message that sums the gradients of the weights. So the error is known at all times, also while a guard
(`local.controller`) has rows sent exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm import BACKWARD, FORWARD, GATHER, SCATTER, Links, Stages
from isthmus.comm.channel.echo import Echo
from isthmus.comm.channel.state import restore, state_of
from isthmus.local.policy import Policy
from isthmus.shard import Shard

ROWS = 128  # of a site and worker that are watched, if it has more: an error is known as well from these as from all
EVERY = 4  # steps between two looks, where a reader's rows are those of one message: they cost 1 % of a step or less
_SALT = 0xEC0
Place = tuple[int, str]  # site and pass


@dataclass
class _Watched:
    """The sampled rows of one site and pass."""

    echo: Echo
    rows: Tensor  # int64 [s]: their numbers among the rows that are sent from
    readers: dict[int, Tensor] = field(default_factory=dict)  # by links, where they last: of each row, [s]
    places: Tensor | None = None  # int64, of all rows: which of the sampled ones it is; s: none


class Watch:
    """The sampled rows of every site, and the errors of a step."""

    def __init__(self, whole: Shard, policy: Policy, rank: int, seed: int):
        self.whole, self.policy, self.rank, self.seed = whole, policy, rank, seed
        self.watched: dict[Place, _Watched] = {}
        self.errors: dict[str, float] = {}  # of this step, over all workers: ‖held − fresh‖ / ‖fresh‖; if it looked
        self.masked: set[int] = set()  # sites whose rows differ from step to step by dropout alone
        self.begin(0, False)

    def begin(self, step: int, watching: bool) -> None:
        """Begin a pass."""
        self.step, self.watching = step, watching
        self.sums: dict[Place, Tensor] = {}  # of squares: held − fresh, and fresh

    def sees(self, pass_: str) -> bool:
        """Return whether rows of a pass are watched now: not where they always are fresh and as they were sent."""
        if not self.watching:
            return False
        stages = self._stages(pass_)
        lossy = stages.mixes_steps or not stages.encode.as_is
        seen = lossy and not stages.clip and not (pass_ == BACKWARD and self.policy.sampler)
        return seen and (_sent_now(stages, self.step) or _compared_now(stages, self.step))

    def sample(self, site: int, pass_: str, among: Links) -> Tensor:
        """Return the numbers of the rows (int64 [s]) of a site that are watched, of those that links carry."""
        return self._watched(site, pass_, among).rows

    def compare(
        self, site: int, pass_: str, make: Callable[[int], Tensor], among: Links, links: Links | None = None
    ) -> None:
        """Compare rows with what readers hold of them; ``make(step)`` gives the sampled rows, to be read at that step.

        ``among``: the rows that can cross; ``links``: those that are read at this step, if the graph was drawn.
        """
        watched, stages = self._watched(site, pass_, among), self._stages(pass_)
        echo, compared = watched.echo, _compared_now(stages, self.step)
        fresh = make(self.step) if compared else None
        for due in echo.dues(self.step) if _sent_now(stages, self.step) else ():
            echo.post(self.step, make(due) if fresh is None or due != self.step else fresh, echo.links, "echo", due)
        held = None if fresh is None else echo.take(self.step)
        if fresh is None or held is None:
            return
        readers = self._readers(watched, pass_, among if links is None else links)
        wide = kernels.sum_dtype(held.dtype)
        both = torch.stack((held.to(wide), fresh.to(wide)))
        both[0] -= both[1]
        self.sums[site, pass_] = torch.linalg.vector_norm(both, dim=2).square_().to(readers.dtype) @ readers

    # Over all workers

    def figures(self) -> dict[str, float]:
        """Return this worker's sums of squares, by name, to be summed over the workers."""
        if not self.watched:
            return {}
        none = torch.zeros(
            2, device=self.whole.device
        )  # of a step that does not look: messages stay as long as they are
        places = sorted(self.watched)
        named = zip(places, torch.stack([self.sums.get(place, none) for place in places]).tolist(), strict=True)
        return {f"{kind} {site} {pass_}": v for (site, pass_), two in named for kind, v in zip(KINDS, two, strict=True)}

    def observe(self, told: Mapping[str, float]) -> None:
        """Take the sums over all workers, from which the errors follow."""
        gap, size = (f"{kind} " for kind in KINDS)
        sums = {name.removeprefix(gap): value for name, value in told.items() if name.startswith(gap)}
        self.errors = {name: math.sqrt(value / told[size + name]) for name, value in sums.items() if told[size + name]}

    @property
    def telling(self) -> dict[str, float]:
        """The errors of the sites whose rows move with the weights alone; of all sites where there is no such one.

        Rows that were made of dropped-out ones have other masks at another step. Like that of a draw, this error is
        every row's own: it averages out over neighbours, and hides how fast the weights move.
        """
        found = {name: error for name, error in self.errors.items() if int(name.split()[0]) not in self.masked}
        return found if any(name.endswith(FORWARD) for name in found) else self.errors

    # Between steps

    def restart(self, policy: Policy) -> None:
        """Let all echoes begin anew, as the channels do when this policy takes over, or will."""
        self.policy = policy
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
        self.watched[site, pass_] = _Watched(echo, rows)
        return self.watched[site, pass_]

    def _readers(self, watched: _Watched, pass_: str, links: Links) -> Tensor:
        """Return the number of readers of each sampled row, float [s]."""
        if pass_ == BACKWARD:
            return torch.ones(len(watched.rows), device=links.device)
        if id(links) in watched.readers:
            return watched.readers[id(links)]
        if watched.places is None:
            none = len(watched.rows)
            watched.places = torch.full((self.whole.num_inner,), none, device=links.device)
            watched.places[watched.rows] = torch.arange(none, device=links.device)
        found = watched.places[torch.cat(links.send_rows).long()]
        count = found.bincount(minlength=len(watched.rows) + 1)[:-1].float()
        if links.send_positions is None:  # not drawn: they last
            watched.readers[id(links)] = count
        return count


KINDS = "gap", "size"


def _sent_now(stages: Stages, step: int) -> bool:
    """Return whether sampled rows go through the stages at this step: at all steps, where what is held hangs on all."""
    by_one_message = stages.merge.suits_drawn and not stages.feedback and not stages.select.skips
    return not by_one_message or step % EVERY == 0


def _compared_now(stages: Stages, step: int) -> bool:
    """Return whether rows are due that were sent through the stages at a step of `_sent_now`."""
    return _sent_now(stages, step - stages.delay) and step >= stages.delay


def _sample(rows: Tensor, nodes: Tensor, stream: int) -> Tensor:
    """Return a few of the rows, drawn by the ids of their nodes."""
    keys = kernels.random_keys(stream, nodes)
    return rows[keys.argsort()[:ROWS].sort().values]
