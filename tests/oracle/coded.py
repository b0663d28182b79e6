"""Rows of few bits (CDFGNN eqs. 22–23, with 2^B − 1 steps between a row's extremes), and error feedback."""

from __future__ import annotations

import numpy as np
import torch
from oracle.partition_parallel import BACKWARD, FORWARD, Policy, Rows

from isthmus import kernels

Bits = int | str | None


def nearest(x: np.ndarray, bits: int) -> np.ndarray:
    """Return what is read back of rows [k, F]: lo + q · unit, with lo and unit sent as float32."""
    low, high = x.min(1, keepdims=True), x.max(1, keepdims=True)
    lo, unit = (v.astype(np.float32).astype(float) for v in (low, (high - low) / (2**bits - 1)))
    q = np.divide(x - lo, unit, out=np.zeros_like(x), where=unit > 0)
    return lo + np.clip(np.rint(q), 0, 2**bits - 1) * unit


def stochastic(x: np.ndarray, bits: int, key: int) -> np.ndarray:
    """Return the same with random rounding, by the program's own draw."""
    rows = torch.from_numpy(np.ascontiguousarray(x))
    return kernels.unpack_rows(kernels.pack_rows(rows, bits, stream=key), bits, torch.empty_like(rows)).numpy()


def bf16(x: np.ndarray) -> np.ndarray:
    """Return the upper half of a float32, rounded to the nearest, ties to even."""
    words = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    rounded = (words + np.uint32(0x7FFF) + ((words >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return rounded.view(np.float32).astype(float)


def fp16(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32).astype(np.float16).astype(float)


class Coded:
    """A wire that returns what is read back of rows. With feedback, y = x + e is sent, and e = y − read(y) is kept."""

    def __init__(self, bits: Bits, bits_gradients: Bits = None, rounding="nearest", feedback=False, seed=0):
        self.bits = {FORWARD: bits, BACKWARD: bits if bits_gradients is None else bits_gradients}
        self.rounding, self.feedback, self.seed = rounding, feedback, seed
        self.errors: dict[tuple[int, int, int, int], dict[int, np.ndarray]] = {}  # per link, by node

    def __call__(self, t: int, site: int, way: int, q: int, r: int, rows: np.ndarray, ids: np.ndarray) -> np.ndarray:
        sender, reader = (q, r) if way == FORWARD else (r, q)
        key = kernels.stream(self.seed, t, site, way, sender, reader)
        if not self.feedback or self.bits[way] == 32:
            return self.read(rows, self.bits[way], key)
        left = self.errors.setdefault((site, way, q, r), {})
        y = rows + np.array([left.get(int(node), np.zeros(rows.shape[1])) for node in ids])
        read = self.read(y, self.bits[way], key)
        left.update(zip(ids.tolist(), y - read, strict=True))
        return read

    def read(self, rows: np.ndarray, bits: Bits, key: int) -> np.ndarray:
        by_name = {32: lambda x: x, 16: bf16, "bf16": bf16, "fp16": fp16}
        if bits in by_name:
            return by_name[bits](rows)
        return nearest(rows, bits) if self.rounding == "nearest" else stochastic(rows, bits, key)


def coded_total(bits: int | str, seed: int):
    """Return a sum of the weights' gradients, coded in blocks of 256.

    Worker k reads slice k from every other worker, and all workers read its sum.
    """

    def read(blocks: np.ndarray, key: int) -> np.ndarray:
        return bf16(blocks) if bits == "bf16" else stochastic(blocks, int(bits), key)

    def total(t: int, shares: list[np.ndarray]) -> np.ndarray:
        size, count = len(shares), len(shares[0])
        height = -(-count // (256 * size))
        padded = np.zeros((size, size * height * 256))
        padded[:, :count] = shares
        blocks, told = padded.reshape(size, size, height, 256), []
        for k in range(size):
            sent = [kernels.stream(seed, t, 0x5C0, 0, q, k) for q in range(size)]
            summed = sum(blocks[q, k] if q == k else read(blocks[q, k], sent[q]) for q in range(size))
            told.append(read(summed, kernels.stream(seed, t, 0x5C0, 1, k, k)))
        return np.concatenate(told).ravel()[:count]

    return total


class Ring(Policy):
    """CAGNET 1D: blocks go round a ring forward; backward a sum goes round for each owner, and is coded at each hop.

    The sum for q begins at worker q + 1 and passes every other worker before it ends at q.
    """

    def gradients(self, t: int, site: int, rows: Rows) -> Rows:
        total = np.zeros_like(rows[0])
        for q in range(self.links.size):
            ids = np.nonzero(self.links.owner == q)[0]
            for hop in range(1, self.links.size):
                r = (q + hop) % self.links.size
                total[ids] = self.wire(t, site, BACKWARD, q, r, total[ids] + rows[r][ids], ids)
        return [total]
