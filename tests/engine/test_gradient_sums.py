"""Gradients that are summed piece by piece during the backward pass are those of one sum."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from isthmus.comm import Hub
from isthmus.engine.gradient_sums import GradientSums
from isthmus.errors import WorkerError


class Net(nn.Module):
    """Five layers, of which one is never used, and one by the first worker alone."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6, dtype=torch.float64) for _ in range(5))

    def forward(self, x, first):
        for k, layer in enumerate(self.layers):
            if k != 2 and (k != 3 or first):
                x = torch.relu(layer(x))
        return x.sum()


def made(rank):
    torch.manual_seed(0)
    net = Net()
    return net, torch.randn(8, 6, dtype=torch.float64) * (rank + 1), list(net.parameters())


@pytest.mark.parametrize("workers", [2, 3])
def test_pieces_add_up_to_the_bits_of_one_sum(workers):
    own = []
    for rank in range(workers):
        net, x, parameters = made(rank)
        net(x, rank == 0).backward()
        own.append([torch.zeros_like(p) if p.grad is None else p.grad for p in parameters])
    wanted = []
    for grads in zip(*own, strict=True):
        total = grads[0].clone()
        for grad in grads[1:]:
            total += grad
        wanted.append(total)

    nets = [made(rank) for rank in range(workers)]  # here: threads would share torch's generator

    def work(transport):
        net, x, parameters = nets[transport.rank]
        sums = GradientSums(parameters, transport)
        assert len(sums.pieces) > 1
        for step in range(2):
            net.zero_grad()
            sums.begin(step)
            net(x, transport.rank == 0).backward()
            about = sums.finish(torch.tensor([1.0, transport.rank], dtype=torch.float64))
            assert about.tolist() == [workers, sum(range(workers))]
            assert all(torch.equal(p.grad, total) for p, total in zip(parameters, wanted, strict=True))
        sums.close()
        return transport.ledger.bytes["weights", "reduce", (transport.rank + 1) % workers]

    assert all(size > 0 for size in Hub(workers).run(work))


def test_a_worker_that_is_lost_is_named():
    def work(transport):
        net, x, parameters = made(transport.rank)
        sums = GradientSums(parameters, transport)
        sums.begin(0)
        if transport.rank:
            sums.close()
            raise ValueError("it ends")
        net(x, True).backward()
        try:
            with pytest.raises(WorkerError, match="lost worker 1"):
                sums.finish(torch.zeros(1, dtype=torch.float64))
        finally:
            sums.close()

    with pytest.raises(ValueError, match="it ends"):
        Hub(2).run(work)
