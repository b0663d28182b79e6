"""All-reduce with coded messages, for the gradients of weights."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.comm.channel.codec import Codec
from isthmus.comm.ledger import Where
from isthmus.comm.transport import Transport

BLOCK = 256  # number of values that share their extremes
_SALT = 0x5C0


def sum_coded(
    values: Tensor, in_full: Tensor, encode: Codec, transport: Transport, where: Where, seed: int = 0
) -> None:
    """Sum ``values`` [N] and ``in_full`` [k] over the workers, in place, with the same bits on each.

    As in `Transport.all_reduce` every worker adds up one slice, in the order of ranks, and hands the sum out; but both
    messages are coded, and a worker keeps its own sum as the others decode it. The few values ``in_full`` stay exact
    and go with the first message to everyone.
    """
    begun, size, rank = time.perf_counter(), transport.size, transport.rank
    height = -(-len(values) // (BLOCK * size))
    blocks = values.new_zeros(size, height, BLOCK)
    blocks.view(-1)[: len(values)] = values
    width, form = encode.form(BLOCK, values.dtype)

    def coded(rows: Tensor, hop: int, reader: int) -> Tensor:
        message = values.new_empty(height, width, dtype=form)
        encode.encode(rows, None, message, kernels.stream(seed, where.step, _SALT, hop, rank, reader), None)
        return _bytes(message)

    exact, length = _bytes(in_full), height * width * form.itemsize
    leaving = [exact if q == rank else torch.cat([coded(blocks[q], 0, q), exact]) for q in range(size)]
    arriving = [exact.new_empty(length + len(exact)) for _ in range(size)]
    transport.exchange_sums(leaving, arriving, where)
    arriving[rank][length:] = exact
    total = torch.zeros_like(blocks[rank])
    for q in range(size):
        if q == rank:
            total += blocks[rank]
        else:
            encode.decode(arriving[q][:length].view(form).view(height, width), total, add=True)
    in_full.copy_(torch.stack([message[length:] for message in arriving]).view(in_full.dtype).sum(0))
    told = coded(total, 1, rank)
    sums = [told if q == rank else torch.empty_like(told) for q in range(size)]
    transport.exchange_sums([told] * size, sums, where)
    for block, message in zip(blocks, sums, strict=True):
        encode.decode(message.view(form).view(height, width), block)
    values.copy_(blocks.view(-1)[: len(values)])
    transport.ledger.reduce_seconds += time.perf_counter() - begun


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.view(-1).view(torch.uint8)
