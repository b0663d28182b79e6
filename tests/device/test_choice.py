"""Which device a worker takes, how rows of devices travel, and which files may name devices at all."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import torch
from device.plans import Plan, on_device, on_host, parts

import isthmus
from isthmus import device
from isthmus.comm.backend import DeviceOf, choose_backend, in_words
from isthmus.diagnose.doctor import examine
from isthmus.errors import InputError
from isthmus.launch.display import Display
from isthmus.launch.place import local_rank

SOURCE = Path(isthmus.__file__).parent
TYPES = {"cpu", "cuda", "xpu", "mps", "hip", "hpu", "npu", "mtia", "xla", "meta"}
NAMES = {"cpu", "cuda", "is_cpu", "is_cuda", "xpu", "mps"}


@pytest.mark.parametrize(
    ("asked", "local", "found"),
    [
        ("auto", 0, "shadow:0"),
        ("auto", 2, "shadow:2"),
        ("auto", 5, "shadow:1"),
        ("cpu", 1, "cpu"),
        ("shadow", 3, "shadow:3"),
        ("shadow:1", 0, "shadow:1"),
    ],
)
def test_the_device_of_a_worker(asked, local, found):
    assert device.pick(asked, local) == torch.device(found)


def test_without_an_accelerator_auto_is_the_host(accelerator):
    accelerator.visible = False
    assert device.pick("auto", 1) == torch.device("cpu")
    assert device.every_device() == []


@pytest.mark.parametrize(
    ("asked", "words"),
    [("cuda", "--device cpu"), ("shadow:9", "below shadow:4"), ("toaster", "no device of torch"), ("cuda:x", "torch")],
)
def test_devices_that_are_not_there_are_refused(asked, words):
    with pytest.raises(InputError, match=words):
        device.pick(asked)


def test_the_number_of_a_worker_on_its_machine():
    assert local_rank(5, 4, {}) == 1
    assert local_rank(5, 4, {"LOCAL_RANK": "3"}) == 3
    assert local_rank(5, 4, {"SLURM_LOCALID": "2"}) == 2


def worker(machine, name, nccl=True):
    return DeviceOf(machine, name, nccl)


@pytest.mark.parametrize(
    ("workers", "backend", "words"),
    [
        ([worker("a", "cpu"), worker("b", "cpu")], "gloo", ""),
        ([worker("a", "cuda:0"), worker("a", "cuda:1")], "nccl", "on cuda, rows by NCCL"),
        ([worker("a", "cuda:0"), worker("b", "cuda:0")], "nccl", "on cuda, rows by NCCL"),
        ([worker("a", "cuda:0"), worker("a", "cuda:0")], "gloo", "on cuda, rows by gloo, through pinned memory"),
        ([worker("a", "cuda:0"), worker("b", "cuda:0", nccl=False)], "gloo", "on cuda, rows by gloo"),
        ([worker("a", "cuda:0"), worker("b", "cpu")], "gloo", "on cpu and cuda, rows by gloo"),
        ([worker("a", "xpu:0"), worker("a", "xpu:1")], "gloo", "on xpu, rows by gloo"),
        ([worker("a", "cuda:0")], "nccl", "on cuda:0"),
    ],
)
def test_the_way_of_rows(workers, backend, words):
    assert choose_backend(workers) == backend
    assert in_words(backend, workers).startswith(words)
    assert bool(in_words(backend, workers)) == bool(words)


def named(file):
    """The device types that a file names: as a string of its own, or as an attribute such as torch.cuda."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.partition(":")[0] in TYPES:
            yield f"{file.relative_to(SOURCE)}:{node.lineno} {node.value!r}"
        if isinstance(node, ast.Attribute) and node.attr in NAMES:
            yield f"{file.relative_to(SOURCE)}:{node.lineno} .{node.attr}"


def test_only_kernels_comm_and_one_file_name_a_device_type():
    allowed = {"kernels", "comm", "device.py"}
    files = [file for file in SOURCE.rglob("*.py") if file.relative_to(SOURCE).parts[0] not in allowed]
    assert not [place for file in files for place in named(file)]
    assert any(named(SOURCE / "device.py"))


def test_a_part_that_does_not_fit_is_refused_with_the_remedy(accelerator, monkeypatch, tmp_path):
    book = parts(tmp_path, 2)
    monkeypatch.setattr(accelerator, "free", 1000)
    with pytest.raises(InputError, match=r"worker \d: its part takes at least .* KiB on shadow:.*more parts"):
        on_device(lambda transport: Plan("exact").train(book, transport), 2)


def test_the_doctor_lists_accelerators(accelerator):
    found = [one for one in examine() if one.name == "accelerator"]
    assert [one.value for one in found] == [f"shadow:{k} (16.0 GiB free of 16.0 GiB)" for k in range(4)]
    assert re.search(r"worker 2; [0-9.]+ .iB/s from the host, reads shadow:3 directly; rows", found[2].advice)
    accelerator.visible = False
    assert [one.value for one in examine() if one.name == "accelerator"] == ["none"]


def test_the_first_line_names_the_device(tmp_path):
    book = parts(tmp_path, 2)

    def title(transport):
        return Display(Plan("exact").of(book), book, transport).title

    assert on_device(title, 2)[0].endswith("2 worker(s), on shadow, rows by gloo, through pinned memory of the hosts")
    assert on_host(title, 2)[0].endswith("2 worker(s)")
