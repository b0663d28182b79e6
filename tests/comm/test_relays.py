"""Relays: between two hosts a row crosses once, whichever way it flows."""

from __future__ import annotations

import torch

from isthmus.comm import GATHER, SCATTER, Buffers, Channel, ChannelId, Hub, Links, Relayed, RelaysOf, Stages, relays
from isthmus.comm.hosts import numbered
from isthmus.comm.relays import make_relays

ROWS, WORKERS = 12, 5


def links_of(rank):
    """The links of workers with 12 rows each; reader r mirrors row v of owner q if (v + r + q) mod 4 is below 2."""

    def read(owner, reader):
        every = torch.arange(ROWS, dtype=torch.int32)
        chosen = every[(every + reader + owner) % 4 < 2].flip(0)  # not ascending
        return chosen if owner != reader else every[:0]

    return Links(
        [read(rank, q) for q in range(WORKERS)],
        [len(read(q, rank)) for q in range(WORKERS)],
    )


def both(hosts, leg):
    """What plain and relayed channels give on every worker, and the rows that crossed between hosts."""

    def work(transport):
        links, found = links_of(transport.rank), []
        number = transport.rank * 100 + torch.arange(ROWS if leg == SCATTER else links.num_mirrors)
        rows = torch.stack([number, number**2], dim=1).double()
        for relayed in (False, True):
            about = (transport, Stages(), links, ChannelId(0, "forward", leg), 0, Buffers())
            channel = Relayed(*about, RelaysOf(transport)) if relayed else Channel(*about)
            for step in range(2):
                transport.ledger.take()
                channel.post(step, rows, links, "embeddings")
                taken = channel.take(step)
            if leg == GATHER:
                out = torch.zeros(ROWS, 2, dtype=torch.float64)
                channel.add(taken, out)
                taken = out
            found.append((taken.clone(), transport.ledger.take().between(transport.rank, transport.hosts)[0]))
        return found

    return Hub(WORKERS, hosts=hosts).run(work)


def crossings(hosts):
    """Σ over nodes of the other hosts that read them."""
    host = Hub(WORKERS, hosts=hosts).hosts
    pairs = set()
    for owner in range(WORKERS):
        for reader, rows in enumerate(links_of(owner).send_rows):
            pairs |= {(owner, int(v), host[reader]) for v in rows if host[reader] != host[owner]}
    return len(pairs)


def test_relayed_rows_are_the_same_and_cross_once():
    for hosts in (1, 2, 3):
        for leg in (SCATTER, GATHER):
            found = both(hosts, leg)
            for (plain, _), (relayed, _) in found:
                torch.testing.assert_close(relayed, plain, rtol=0, atol=1e-9)
            direct, once = (sum(worker[k][1] for worker in found) for k in range(2))
            assert once == crossings(hosts) <= direct
            assert hosts == 1 or once < direct


def test_no_relays_where_each_host_has_one_worker():
    found = Hub(WORKERS, hosts=WORKERS).run(lambda transport: make_relays(links_of(transport.rank), transport))
    assert found == [None] * WORKERS


def test_hosts_that_were_found_out_relay_only_what_pays(monkeypatch):
    def found_out(transport):
        transport.hosts_given = False
        return make_relays(links_of(transport.rank), transport) is None

    assert Hub(WORKERS, hosts=2).run(found_out) == [True] * WORKERS
    monkeypatch.setattr(relays, "LEAST", 5)
    assert Hub(WORKERS, hosts=2).run(found_out) == [False] * WORKERS


def test_workers_of_a_host_have_one_number():
    assert numbered(["b", "a", "b", "c"]) == [0, 1, 0, 2]
