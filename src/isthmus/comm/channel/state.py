"""The state of a channel as named tensors, for checkpoints."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from isthmus.comm.channel.channel import Channel
from isthmus.comm.channel.reader import Message
from isthmus.comm.legs import FORWARD
from isthmus.comm.links import Ends, Links

_DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
_ALL = -1  # stands for every row, instead of the numbers of picked rows

LinksOf = Callable[[int], Links]  # gives the links of a step's graph


def state_of(channel: Channel) -> dict[str, Tensor]:
    """Return everything that outlives a step, after waiting for transfers under way."""
    channel.drain()
    reader, state = channel.reader, {"first": torch.tensor([-1 if channel.first is None else channel.first])}
    for q, memory in enumerate(channel.sender.memory):
        state[f"memory.{q}"] = memory
    if channel.own.held.numel():
        state |= {f"own.{name}": tensor for name, tensor in channel.own.state().items()}
    if channel.coding is not None:
        state |= {f"coding.{name}": tensor for name, tensor in channel.coding.state().items()}
    state |= {f"select.{name}": tensor for name, tensor in channel.sender.select.state().items()}
    if reader.layout is not None:
        held = reader.store if channel.stages.merge.keeps else reader.rows
        state |= {"held": held, "updated": reader.updated, "held_for": torch.tensor([reader.layout_of])}
    for i, message in enumerate(channel.queue):
        dtype = _DTYPES.index(message.dtype)
        state[f"queue.{i}.about"] = torch.tensor([message.sent, message.due, message.width, dtype])
        for q, (part, picks) in enumerate(zip(message.parts, message.picks, strict=True)):
            state[f"queue.{i}.part.{q}"] = part
            state[f"queue.{i}.picks.{q}"] = torch.tensor([_ALL]) if picks is None else picks
    return state


def restore(channel: Channel, state: dict[str, Tensor], links_of: LinksOf) -> None:
    """Put a state back; it holds no links, since the graph of any step can be drawn again."""
    first, everyone = int(state["first"]), range(channel.transport.size)
    channel.first = None if first < 0 else first
    if "memory.0" in state:
        channel.sender.memory = [state[f"memory.{q}"].clone() for q in everyone]
    own = {name.removeprefix("own."): t for name, t in state.items() if name.startswith("own.")}
    if own:
        channel.own.restore(own)
    if channel.coding is not None:
        channel.coding.restore({n.removeprefix("coding."): t for n, t in state.items() if n.startswith("coding.")})
    learnt = {name.removeprefix("select."): t for name, t in state.items() if name.startswith("select.")}
    if learnt:
        channel.sender.select.restore(learnt)
    reader = channel.reader
    if "held" in state:
        reader.layout_of, reader.updated = int(state["held_for"]), state["updated"].clone()
        layout = links_of(reader.layout_of)
        if channel.stages.merge.keeps:
            reader.store = state["held"].clone()
            reader.show(layout)
        else:
            reader.rows, reader.layout = state["held"].clone(), layout
    channel.queue.clear()
    while f"queue.{len(channel.queue)}.about" in state:
        channel.queue.append(_message(channel, state, f"queue.{len(channel.queue)}", links_of))


def _message(channel: Channel, state: dict[str, Tensor], name: str, links_of: LinksOf) -> Message:
    sent, due, width, dtype = state[f"{name}.about"].tolist()
    parts = [state[f"{name}.part.{q}"] for q in range(channel.transport.size)]
    picks = [state[f"{name}.picks.{q}"] for q in range(channel.transport.size)]
    block = None
    if channel.stages.plain:
        block = torch.cat(parts)
        parts = Ends([len(part) for part in parts]).split(block)
    return Message(
        sent=sent,
        due=due,
        links=links_of(due if channel.id.pass_ == FORWARD else sent),
        picks=[None if pick.tolist() == [_ALL] else pick for pick in picks],
        width=width,
        dtype=_DTYPES[dtype],
        counts=[len(part) for part in parts],
        parts=[part.clone() for part in parts] if block is None else parts,
        block=block,
        codecs=[channel.stages.encode] * channel.transport.size,
    )
