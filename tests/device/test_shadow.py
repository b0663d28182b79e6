"""The pretend accelerator refuses what a real one would, and can do what one can."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
import torch.distributed as dist

HOST = torch.arange(6.0).view(2, 3)


@pytest.fixture
def x():
    return HOST.to("shadow")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: x + HOST,
        lambda x: x[torch.tensor([0])],
        lambda x: torch.cat([x, HOST]),
        lambda x: x + x.to("shadow:1"),
        lambda x: x.numpy(),
        lambda x: x.data_ptr(),
        lambda x: torch.randn(2, device="shadow", generator=torch.Generator()),
        lambda x: x.__setattr__("data", HOST),
    ],
    ids=["sum", "index", "cat", "two devices", "numpy", "pointer", "generator", "data"],
)
def test_the_host_and_other_devices_do_not_mix_in(x, wrong):
    with pytest.raises((RuntimeError, TypeError)):
        wrong(x)


def test_a_process_group_of_hosts_refuses_it(x):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(RuntimeError, match="process group of hosts"):
            dist.all_reduce(x)
    finally:
        dist.destroy_process_group()


def test_numbers_of_the_host_take_part(x):
    assert (x * torch.tensor(2.0)).tolist() == (HOST * 2).tolist()


def test_shapes_change_in_place(x):
    y = x.clone()
    y.unsqueeze_(0)
    assert y.shape == (1, 2, 3)
    y.squeeze_(0).t_()
    assert (y.shape, y.tolist()) == ((3, 2), HOST.t().tolist())
    y.resize_(8)
    assert y.shape == (8,)
    y.data = x
    assert y.tolist() == HOST.tolist()
    assert torch.arange(4, out=torch.empty(0, dtype=torch.int64, device="shadow")).shape == (4,)


def test_views_share_memory(x):
    x[1:].zero_()
    assert x.tolist() == [[0, 1, 2], [0, 0, 0]]
    assert x.view(-1).untyped_storage()._cdata == x.untyped_storage()._cdata


@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_products(x):
    indptr, indices = torch.tensor([0, 1, 3], device="shadow"), torch.tensor([1, 0, 1], device="shadow")
    csr = torch.sparse_csr_tensor(indptr, indices, torch.ones(3, device="shadow"), (2, 2))
    assert csr.layout is torch.sparse_csr
    assert (csr @ x).tolist() == [[3, 4, 5], [3, 5, 7]]


def test_pinned_memory_generators_and_autocast(x):
    assert HOST.pin_memory().is_pinned()
    assert not HOST.is_pinned()
    one, other = (torch.Generator(device="shadow").manual_seed(7) for _ in range(2))
    drawn = torch.randn(3, device="shadow", generator=one)
    assert torch.equal(drawn, torch.randn(3, device="shadow", generator=other))
    with torch.autocast("shadow", dtype=torch.bfloat16):
        assert (x @ x.t()).dtype == torch.bfloat16
    assert (x @ x.t()).dtype == torch.float32


def test_modules_and_optimizers(x):
    model = torch.nn.Linear(3, 2).to("shadow")
    threads = []
    model.weight.register_hook(lambda grad: threads.append(threading.current_thread()))
    model(x).sum().backward()
    torch.optim.Adam(model.parameters()).step()
    assert threads[0] is not threading.main_thread()  # as on CUDA: autograd has a thread for each device
    assert copy.deepcopy(model).weight.device.type == "shadow"
