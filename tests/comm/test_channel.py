"""The channel, stage by stage and in combination, against the literal one, on links made by hand."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from oracle.channel import (
    BYTES,
    INNER,
    READ,
    ROUTES,
    WIDTH,
    WORKERS,
    Expected,
    block_of,
    drawn_at,
    links_of,
    planted,
)

from isthmus.comm import (
    BACKWARD,
    FORWARD,
    GATHER,
    SCATTER,
    Add,
    All,
    Buffers,
    Changed,
    Channel,
    ChannelId,
    Clip,
    Every,
    Gap,
    Hub,
    Keep,
    Replace,
    Ring,
    Smooth,
    Stages,
    codec,
)
from isthmus.comm.channel.state import restore, state_of
from isthmus.errors import InputError

STEPS = 7
BITS = (32, "bf16", "fp16", 8, 4, 2)


def watched(transport):
    """Fail if memory that is being sent is written to before the transfer was waited for."""
    plain = transport.exchange

    def exchange(send, recv, where, **given):
        pending, copies = plain(send, recv, where, **given), [tensor.clone() for tensor in send]
        wait = pending._wait

        def check():
            assert all(torch.equal(*pair) for pair in zip(send, copies, strict=True)), "written while under way"
            wait()

        pending._wait = check
        return pending

    transport.exchange = exchange
    return transport


def run(setups: list[tuple[Stages, tuple[str, str]]], steps=range(STEPS), states=None, drawn=False):
    """Run channels of these stages and routes side by side, with shared buffers, on every worker.

    Returns per worker: [step][channel] → (rows held, one piece per sender; ledgers of posting and of taking); states.
    """

    def work(transport):
        rank, buffers, found, ledger = watched(transport).rank, Buffers(), [], transport.ledger

        def links(step):
            return links_of(rank, drawn_at(step) if drawn else None)

        channels = []
        for site, (stages, route) in enumerate(setups):
            channels.append(Channel(transport, stages, links_of(rank), ChannelId(site, *route), 5, buffers))
        for channel in channels if states else []:
            restore(channel, states[rank][channel.id.site], links)
        for step in steps:
            posting, taken, taking = [], [], []
            for channel in channels:
                for due in channel.dues(step) if drawn and channel.id.pass_ == FORWARD else [None]:
                    graph = step if due is None else due
                    block = block_of(rank, channel.id.leg, step, drawn_at(graph) if drawn else None)
                    if channel.id.leg == GATHER:
                        block = channel.outbox(*block.shape, block.dtype).copy_(block)
                    channel.post(step, block, links(graph), "embeddings", due)
                posting.append(ledger.take())
            for channel in channels:
                taken.append(channel.take(step))
                taking.append(ledger.take())
            pieces = [
                None if rows is None else [p.clone() for p in c.reader.layout.arriving(c.id.leg).split(rows)]
                for c, rows in zip(channels, taken, strict=True)
            ]
            found.append(list(zip(pieces, posting, taking, strict=True)))
        return found, [{name: tensor.clone() for name, tensor in state_of(c).items()} for c in channels]

    return Hub(WORKERS).run(work)


def check(setups: list[tuple[Stages, tuple[str, str]]], bits: list[int | str], drawn: bool = False) -> None:
    """Check the rows held, their ages and their bytes, on every worker at every step."""
    results, everyone = run(setups, drawn=drawn), range(WORKERS)
    for site, (stages, route) in enumerate(setups):
        expected = Expected(stages, bits[site], route, drawn)
        for step in range(STEPS):
            expected.post(step)
            expected.take(step)
            for rank, (found, _) in enumerate(results):
                about = f"{stages}, {route}, step {step}, worker {rank}"
                pieces, posting, taking = found[step][site]
                left = sum(expected.left[rank, q] for q in everyone)
                assert posting.kinds["embeddings"] == left * BYTES[bits[site]], about
                assert posting.kinds["ids"] == sum(expected.told[rank, q] for q in everyone), about
                held = expected.held(rank)
                if not held:
                    assert pieces is None, about
                    continue
                assert [len(piece) for piece in pieces] == [len(rows) for rows in held], about
                assert np.abs(torch.cat(pieces).numpy() - np.concatenate(held)).max(initial=0) < 1e-11, about
                ages = expected.ages(rank, step)
                assert taking.rows_used == len(ages), about
                assert taking.age_max == max(ages, default=0), about
                assert taking.age_sum == pytest.approx(ages.sum(), abs=1e-4), about


SELECTS = (All(), Every(1), Every(2, staggered=True), Gap(1e-5), Changed(1e-5))
MERGES = (Replace(), Keep(), Add(), Smooth(0.8), Smooth(0.6, from_zero=True))


@pytest.mark.parametrize("merge", MERGES, ids=str)
@pytest.mark.parametrize("select", SELECTS, ids=str)
def test_stages_together(select, merge):
    if not isinstance(select, All) and isinstance(merge, Replace | Smooth):
        with pytest.raises(InputError, match="must keep the old ones"):
            Stages(select, merge=merge, delay=1)
        return
    setups, bits = [], []
    for number, (each, delay) in enumerate(product(BITS, range(4))):
        if (isinstance(merge, Add) and each == 32) or (isinstance(merge, Smooth) and not delay):
            continue
        warm, both = not delay or number % 3 > 0, isinstance(merge, Replace | Keep) and isinstance(select, All)
        feedback = number % 2 == 0 and each != 32 and isinstance(select, All) and not isinstance(merge, Add)
        for route in ROUTES if both else (ROUTES[(number // 4 + delay) % 4],):
            setups.append((Stages(select, codec(each), feedback, delay, warm, merge), route))
            bits.append(each)
    check(setups, bits)


DRAWN = (
    {},
    {"encode": codec(8), "feedback": True},
    {"encode": codec(4), "merge": Add()},
    {"select": Changed(1e-5), "merge": Keep()},
    {"select": Changed(1e-5), "encode": codec(8), "merge": Add()},
    {"select": Every(1), "merge": Keep()},
)


def test_drawn_links():
    """Every step reads other rows; memory and held rows stay by position until a row is drawn again."""
    setups, bits = [], []
    for options, delay, route in product(DRAWN, range(3), ROUTES):
        setups.append((Stages(**options, delay=delay, warm=delay < 2), route))
        bits.append(getattr(options.get("encode"), "bits", 32))
    check(setups, bits, drawn=True)


@pytest.mark.parametrize("stages", [Stages(delay=1, merge=Smooth(0.9)), Stages(encode=codec(8), merge=Add())], ids=str)
def test_rows_in_bf16_are_held_in_float32(stages):
    def work(transport):
        channel = Channel(transport, stages, links_of(transport.rank), ChannelId(0, FORWARD, SCATTER), 0, Buffers())
        for step in range(4):
            block = torch.full((INNER, WIDTH), 1.0 + step, dtype=torch.bfloat16)
            channel.post(step, block, links_of(transport.rank), "embeddings")
            held = channel.take(step)
        return held

    want = torch.tensor(4.0 if isinstance(stages.merge, Add) else 0.9 * (0.9 + 0.1 * 2) + 0.1 * 3)
    for held in Hub(WORKERS).run(work):
        torch.testing.assert_close(held, want.expand_as(held))


@pytest.mark.parametrize("places", [None, drawn_at(0)], ids=["whole", "drawn"])
def test_gradients_are_added_to_their_rows(places):
    def work(transport):
        rank, out = transport.rank, torch.full((INNER, WIDTH), 0.5, dtype=torch.float64)
        channel = Channel(transport, Stages(), links_of(rank), ChannelId(0, BACKWARD, GATHER), 0, Buffers())
        channel.post(0, block_of(rank, GATHER, 0, places), links_of(rank, places), "gradients")
        channel.add(channel.take(0), out)
        return out.numpy()

    for owner, got in enumerate(Hub(WORKERS).run(work)):
        want = np.full((INNER, WIDTH), 0.5)
        for reader in range(WORKERS):
            rows = READ[owner, reader] if places is None else READ[owner, reader][places[owner, reader]]
            want[rows] += planted(reader, rows, 0)
        np.testing.assert_allclose(got, want, rtol=1e-12)


@pytest.mark.parametrize("power", [-0.5, 0.5])
def test_clip(power):
    """Everything that a worker sends back at a site is one block, whoever it is for; short blocks are left alone."""
    sizes = [np.linalg.norm(block_of(rank, GATHER, 0).numpy()) for rank in range(WORKERS)]
    limit = sorted(sizes)[1]  # the shortest passes, and the middle one just so
    stages = Stages(clip=Clip(limit * WORKERS**-power, power))
    expected = Expected(stages, 32, (BACKWARD, GATHER))
    expected.post(0)
    expected.take(0)
    for rank, (found, _) in enumerate(run([(stages, (BACKWARD, GATHER))], steps=range(1))):
        for q, piece in enumerate(found[0][0][0]):
            want = expected.held(rank)[q] * min(1, limit / sizes[q])
            np.testing.assert_allclose(piece, want, rtol=1e-12)


@pytest.mark.parametrize("bits", [32, 8])
def test_ring(bits):
    """Every block passes every worker, so each sends two of three blocks of ten rows; sums are coded at each hop."""

    def work(transport):
        rank, found = transport.rank, []
        for pass_, leg in ROUTES[:2]:
            stages = Stages(encode=codec(bits), ring=True)
            ring = Ring(transport, stages, links_of(rank), ChannelId(0, pass_, leg), 0, Buffers(), INNER)
            ring.post(3, block_of(rank, leg, 3), links_of(rank), "embeddings")
            transport.ledger.take()
            found += [ring.take(3).numpy(), transport.ledger.take().kinds["embeddings"]]
        return found

    for rank, (halo, forward, gradients, backward) in enumerate(Hub(WORKERS).run(work)):
        read = Expected(Stages(), bits, ROUTES[0]).read
        want = np.concatenate([read(planted(q, READ[q, rank], 3)) for q in range(WORKERS)])
        np.testing.assert_allclose(halo, want, rtol=1e-12)
        total = np.zeros((INNER, WIDTH))
        for reader in ((rank + 1) % WORKERS, (rank + 2) % WORKERS):
            total[READ[rank, reader]] += planted(reader, READ[rank, reader], 3)
            total = read(total)
        np.testing.assert_allclose(gradients, total, rtol=1e-12)
        assert forward == backward == 2 * INNER * BYTES[bits]


STATEFUL = [
    (Stages(All(), codec(4, "stochastic"), True, 2, True, Smooth(0.7)), False),
    (Stages(Changed(1e-5), codec(8), False, 3, True, Add()), False),
    (Stages(Gap(1e-5), codec(32), False, 1, True, Keep()), False),
    (Stages(Every(2, staggered=True), codec("bf16"), False, 2, False, Keep()), False),
    (Stages(delay=3), False),
    (Stages(delay=2, warm=False), False),
    (Stages(All(), codec("fp16"), True, 1), False),
    (Stages(delay=2), True),
    (Stages(All(), codec(4, "stochastic"), True, 3), True),
]


@pytest.mark.parametrize("stop", [1, 4])
@pytest.mark.parametrize("drawn", [False, True])
def test_state_goes_on_bit_for_bit(drawn, stop):
    """A state taken with messages under way, put into new channels, gives what the old ones would have given."""
    setups = [(s, way) for s, over_drawn in STATEFUL for way in ROUTES if over_drawn == drawn]
    through = run(setups, drawn=drawn)
    states = [states for _, states in run(setups, range(stop), drawn=drawn)]
    resumed = run(setups, range(stop, STEPS), states, drawn)
    for (whole, last), (rest, last_again) in zip(through, resumed, strict=True):
        for want, got in zip(whole[stop:], rest, strict=True):
            for (one, _, ages), (two, _, ages_again) in zip(want, got, strict=True):
                assert (one is None) == (two is None)
                assert one is None or all(torch.equal(*pair) for pair in zip(one, two, strict=True))
                assert (ages.age_sum, ages.age_max) == (ages_again.age_sum, ages_again.age_max)
        for one, two in zip(last, last_again, strict=True):
            assert one.keys() == two.keys()
            assert all(torch.equal(one[name], two[name]) for name in one)
