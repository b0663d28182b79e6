"""Relays: between two hosts a row crosses once, whatever the number of its readers there.

    scatter: owner ──────→ relay ──→ other readers on the relay's host
    gather:  owner ←────── relay ←── other mirrors on the relay's host, whose rows the relay adds to its own

Of the workers of a host that mirror a node owned on another host one is the node's relay there. So of a node on k hosts
k − 1 rows cross between hosts per leg, and no more. Workers of the owner's host are served by the owner itself.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus.comm.ledger import Where
from isthmus.comm.links import Links
from isthmus.comm.transport import Transport

LEAST = 1000  # rows per host and exchange that must be spared if hosts were found out: to wait on a host costs, too
_KEPT = 64  # links whose relays are kept
_WHERE = Where("relays", "setup", 0, "ids")


@dataclass(frozen=True)
class Relays:
    """The rows of some links in two tiers: from owners to relays, and from relays to the workers of their host."""

    links: Links
    outer: Links  # of the rows that owners send me: all from my host and, from others, those that I relay
    here: Tensor  # int32: their places among my mirrors
    inner: Links  # to worker q of my host I pass ``send_rows[q]`` of the mirrors of `outer`, and so many come from it
    passed: Tensor  # int32: the places of those that come from relays among my mirrors, by relay
    order: Tensor  # int32 [mirrors]: the place of each among those of `here`, followed by those `passed`


class RelaysOf:
    """The relays of links, made when these are first used; every worker asks for the same links at the same time."""

    def __init__(self, transport: Transport):
        self.transport = transport
        self._made: OrderedDict[int, tuple[Links, Relays | None]] = OrderedDict()

    def __call__(self, links: Links) -> Relays | None:
        """Return the relays of links; None if rows go straight to their readers."""
        found = self._made.get(id(links))
        if found is None or found[0] is not links:
            found = self._made[id(links)] = links, make_relays(links, self.transport)
            if len(self._made) > _KEPT:
                self._made.popitem(last=False)
        return found[1]


def make_relays(links: Links, transport: Transport) -> Relays | None:
    """Choose a relay for every row and host; None if that spares no row, or too few where nobody gave the hosts."""
    rank, hosts, everyone = transport.rank, transport.hosts, range(transport.size)
    chosen = _choose(links, rank, hosts)
    mine = sum(int((relay != q).sum()) for q, relay in enumerate(chosen))
    spared = transport.all_reduce(torch.tensor([mine]), _WHERE).item()
    if not spared or (not transport.hosts_given and spared < LEAST * len(set(hosts))):
        return None
    told = [torch.stack([relay, rows], dim=1) for relay, rows in zip(chosen, links.send_rows, strict=True)]
    heard = torch.empty(links.num_mirrors, 2, dtype=torch.int32, device=links.device)
    transport.exchange(told, links.mirrors.split(heard), _WHERE).wait()
    relay, row = heard.long().unbind(1)
    owner = torch.repeat_interleave(torch.tensor(links.mirror_counts, device=links.device))
    node = (owner << 32) + row  # names a node on every worker
    here = (relay == rank).nonzero().flatten()
    passed = [(relay == q).nonzero().flatten() if q != rank else here[:0] for q in everyone]
    order = torch.empty_like(relay)
    order[torch.cat([here, *passed])] = torch.arange(len(order), device=order.device)
    return Relays(
        links,
        Links(
            [rows[relay == q] for q, (rows, relay) in enumerate(zip(links.send_rows, chosen, strict=True))],
            torch.bincount(owner[here], minlength=transport.size).tolist(),
        ),
        here.to(torch.int32),
        Links(_places(node[here], [node[at] for at in passed], transport), [len(at) for at in passed]),
        torch.cat(passed).to(torch.int32),
        order.to(torch.int32),
    )


def _choose(links: Links, rank: int, hosts: Sequence[int]) -> list[Tensor]:
    """Return for each worker and each of my rows that it mirrors the relay on its host, int32; the readers take turns.

    Workers of my own host need none: they are their own.
    """
    chosen = [torch.full_like(rows, q) for q, rows in enumerate(links.send_rows)]
    for host in set(hosts) - {hosts[rank]}:
        readers = [q for q in range(len(hosts)) if hosts[q] == host]
        rows, order = torch.cat([links.send_rows[q] for q in readers]).sort(stable=True)
        who = torch.cat([chosen[q] for q in readers])[order]
        _, counts = torch.unique_consecutive(rows, return_counts=True)
        turn = torch.arange(len(counts), device=rows.device) % counts.clamp_min(1)
        relay = torch.empty_like(who)
        relay[order] = who[counts.cumsum(0) - counts + turn].repeat_interleave(counts)
        for q, part in zip(readers, relay.split([len(chosen[q]) for q in readers]), strict=True):
            chosen[q] = part
    return chosen


def _places(relayed: Tensor, asked: list[Tensor], transport: Transport) -> list[Tensor]:
    """Tell relays which nodes I ask them for; return the places of those that I am asked for among ``relayed``."""
    counts = [relayed.new_zeros(1) for _ in asked]
    transport.exchange([nodes.new_tensor([len(nodes)]) for nodes in asked], counts, _WHERE).wait()
    wanted = [relayed.new_zeros(int(count)) for count in counts]
    wanted[transport.rank] = relayed[:0]
    transport.exchange(asked, wanted, _WHERE).wait()
    ascending, order = relayed.sort()
    return [order[torch.searchsorted(ascending, nodes)].to(torch.int32) for nodes in wanted]
