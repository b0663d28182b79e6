"""Check that all workers have the same weights, which holds only if every update uses the summed gradients.

Sums over workers are the same bits on all of them, and optimizers work number by number: so on machines that compute
alike weights stay equal to the bit, and any other value is a mistake of the loop. Machines of different kinds (another
processor or device, other instructions, another number of threads) round differently; there, a difference is a mistake
only if it is larger than what roundings add up to.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from isthmus.comm import Transport, Where
from isthmus.device import described, instructions
from isthmus.engine.record import over_workers
from isthmus.errors import InputError

OFTEN = 100  # steps between two checks in a user's own loop
ROUNDINGS = 256  # units in the last place of a tensor's largest weight; updates are alike, so they do not build up
WHERE = Where("weights", "reduce", 0, "weights")
_ODD = 0x9E3779B97F4A7C15 - (1 << 64)  # spreads the places of weights over all 64 bits


def check_alike(model: nn.Module, transport: Transport, remedy: str) -> None:
    """Refuse, on all workers at once, models whose weights differ between workers; ``remedy`` ends the error.

    Costs one pass over the weights and a message of two numbers; only weights that are not the same bits are compared
    value by value, with those of worker 0.
    """
    if transport.size == 1:
        return
    bits = checksum(list(model.parameters()))
    halves = over_workers([float(bits >> 32), float(bits & 0xFFFFFFFF)], transport)
    if bool((halves == halves[0]).all()):
        return
    alike = len(set(transport.gather_words(arithmetic(transport.device), WHERE))) == 1
    names, weights = zip(*model.named_parameters(), strict=True)
    apart = over_workers([_distance(one.detach(), transport) for one in weights], transport)
    units = torch.tensor([0.0 if alike else ROUNDINGS * _last_place(one) for one in weights], dtype=torch.float64)
    worker, worst = divmod(int((apart - units).argmax()), len(names))
    if apart[worker, worst] > units[worst]:
        raise InputError(
            f"the weights of worker {worker} differ from those of worker 0 ({names[worst]} by "
            f"{float(apart[worker, worst]):.1g} of its largest): {remedy}"
        )


@torch.no_grad()
def checksum(tensors: Sequence[Tensor]) -> int:
    """Return 64 bits that depend on every bit of the tensors and on its place."""
    total = 0
    for number, tensor in enumerate(tensors):
        flat = (torch.view_as_real(tensor) if tensor.is_complex() else tensor).detach().reshape(-1)
        whole = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()]
        place = 2 * torch.arange(len(flat), device=flat.device) + 1
        # int64 wraps around; odd factors let no bit go lost.
        total += int((flat.view(whole).long() * (place * _ODD)).sum()) * (2 * number + 1)
    return total & 0xFFFFFFFFFFFFFFFF


def arithmetic(device: torch.device) -> str:
    """Return what the last digits of a result depend on: processor, its instructions, device, threads."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.is_file() else []
    model = next((line for line in lines if line.startswith("model name")), platform.processor())
    return "; ".join([platform.machine(), model, instructions(), described(device), str(torch.get_num_threads())])


def _distance(weight: Tensor, transport: Transport) -> float:
    """Return max |w − w_0| / max |w_0| for the weights w_0 of worker 0; infinite if only one of two is a number."""
    first = transport.all_reduce(weight.clone() if transport.rank == 0 else torch.zeros_like(weight), WHERE)
    differs = (weight != first) & ~(weight.isnan() & first.isnan())
    if not bool(differs.any()):
        return 0.0
    gap = float((weight - first)[differs].abs().double().max().nan_to_num(torch.inf))
    return gap / max(float(first.abs().max().nan_to_num(0.0)), torch.finfo(torch.float64).tiny)


def _last_place(weight: Tensor) -> float:
    return torch.finfo(weight.dtype).eps if weight.is_floating_point() else 0.0
