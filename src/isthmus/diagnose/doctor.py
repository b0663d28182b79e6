"""Examine this installation: what it has, what of it is slow, and how to mend that."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import socket
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import torch
import torch.distributed as dist

import isthmus
from isthmus import kernels
from isthmus.comm.backend import nccl_is_here
from isthmus.device import copy_rate, described, every_device, reached_by
from isthmus.kernels import native, on_triton
from isthmus.launch.place import detect, threads_for
from isthmus.partition import metis
from isthmus.units import size_text

TORCHRUN_PORT = 29500
SHARED_MEMORY, LEAST_SHARED_MEMORY = Path("/dev/shm"), 1 << 30
FILES_PER_WORKER, FILES_OF_A_PROCESS = 2, 200

EXTRAS = {
    "torch_geometric": ("pyg", "PyG models and pyg: datasets"),
    "ogb": ("ogb", "downloading ogb: datasets"),
    "pyarrow": ("parquet", "Parquet files"),
    "tensorboard": ("tensorboard", "train --tensorboard"),
    "wandb": ("wandb", "train --track wandb"),
    "mlflow": ("mlflow", "train --track mlflow"),
    "ray": ("ray", "train --launcher ray"),
}


@dataclass(frozen=True)
class Finding:
    name: str
    value: str
    advice: str = ""
    wrong: bool = False
    """Whether something has to be mended; otherwise the advice is only good to know."""


def examine() -> list[Finding]:
    """Return every finding, good or bad."""
    return [
        Finding("python", f"{platform.python_version()} on {platform.machine()}"),
        Finding("isthmus", isthmus.__version__),
        Finding("torch", torch.__version__),
        native_core(),
        _bf16(),
        _metis(),
        _threads(),
        _backend(),
        *_devices(),
        _triton(),
        _launcher(),
        _ports(),
        _shared_memory(),
        _open_files(),
        *(_extra(module, *about) for module, about in EXTRAS.items()),
    ]


def native_core() -> Finding:
    if os.environ.get("ISTHMUS_NATIVE") == "0":
        return Finding("native core", "off", "ISTHMUS_NATIVE=0 asks for the torch twins, 3–10× slower: unset it", True)
    file = native.path()
    if file is None:
        return Finding(
            "native core",
            "missing",
            "aggregation runs as torch twins, 3–10× slower: install a C++ compiler (g++ or clang), then "
            "pip install --force-reinstall --no-deps isthmus",
            True,
        )
    level = file.name.removeprefix("_core_").split(".")[0]
    loads = native.core() is not None
    return Finding("native core", level, "" if loads else f"{file.name} does not load: reinstall", not loads)


def _bf16() -> Finding:
    if kernels.bf16_is_fast():
        return Finding("bf16 products", "by the processor itself", "precision=auto (in recipe isthmus) makes use of it")
    return Finding("bf16 products", "slow", "no instructions for them here: precision=auto stays with fp32")


def _metis() -> Finding:
    if not metis.available():
        return Finding("metis", "missing", "only random, blocks and ldg can cut graphs: pip install pymetis", True)
    return Finding("metis", f"pymetis {metadata.version('pymetis')}")


def _threads() -> Finding:
    """Report the threads; every command sets those of its workers itself."""
    place, told = detect(), os.environ.get("OMP_NUM_THREADS")
    if place is None:
        value, advice = str(threads_for(1, None)), "shared out among the workers of a machine; "
    else:
        value, advice = f"{threads_for(place.local_size, place.threads)} per worker", ""
    return Finding("threads", value, f"{advice}--threads sets them" + (", OMP_NUM_THREADS does not" if told else ""))


def _backend() -> Finding:
    if not dist.is_available():
        return Finding(
            "backend", "missing", "this torch has no torch.distributed: install another build of torch", True
        )
    return Finding("backend", "gloo and NCCL" if nccl_is_here() else "gloo")


def _devices() -> list[Finding]:
    """Report every accelerator, and how two of them would be linked."""
    found = every_device()
    if not found:
        return [Finding("accelerator", "none", "--device auto computes on the CPU")]
    way = "rows of several go by NCCL" if nccl_is_here() else "rows of several go by gloo, through the host's memory"
    return [
        Finding("accelerator", described(one), f"--device auto takes it for worker {number}; {_linked(one)}; {way}")
        for number, one in enumerate(found)
    ]


def _linked(device: torch.device) -> str:
    """Return how fast the host's rows come to a device, and which others it reads directly."""
    direct = ", ".join(map(str, reached_by(device))) or "no other"
    return f"{size_text(copy_rate(device))}/s from the host, reads {direct} directly"


def _triton() -> Finding:
    if on_triton.is_here():
        return Finding("triton", metadata.version("triton"), "only CUDA devices make use of it")
    return Finding("triton", "not installed", "only for CUDA devices, whose torch brings it along")


def _launcher() -> Finding:
    place = detect()
    if place is None:
        return Finding("launcher", "none", "train starts its own workers on this machine")
    return Finding("launcher", place.launcher, f"worker {place.rank} of {place.size}, meeting at {place.host}")


def _ports() -> Finding:
    """Check for free ports: workers of a machine meet at a port chosen by the system; torchrun's default is 29500."""
    if not _can_listen(0):
        return Finding("free ports", "none", "no program can listen on loopback: close some, or mend `lo`", True)
    taken = detect() is None and not _can_listen(TORCHRUN_PORT)
    hint = f"{TORCHRUN_PORT} is taken: under torchrun give another --master-port" if taken else ""
    return Finding("free ports", "yes", hint)


def _can_listen(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
        return True
    except OSError:
        return False


def _shared_memory() -> Finding:
    if not SHARED_MEMORY.is_dir():
        return Finding("shared memory", "no /dev/shm", "only NCCL and Ray use it")
    usage = shutil.disk_usage(SHARED_MEMORY)
    small = usage.free < LEAST_SHARED_MEMORY
    hint = "NCCL and Ray need more, workers on CPUs none of it; a container gets it by --shm-size=2g" if small else ""
    return Finding("shared memory", f"{size_text(usage.free)} free of {size_text(usage.total)}", hint)


def _open_files() -> Finding:
    """Check the limit of open files, since every worker is connected with every other."""
    place, limit = detect(), resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    needed = FILES_PER_WORKER * (place.size if place else 1) + FILES_OF_A_PROCESS
    few = 0 <= limit < needed
    return Finding(
        "open files", f"at most {limit:,}", f"about {needed} may be needed: ulimit -n {2 * needed}" if few else "", few
    )


def _extra(module: str, extra: str, purpose: str) -> Finding:
    try:
        return Finding(module, metadata.version(module))
    except metadata.PackageNotFoundError:
        return Finding(module, "not installed", f"only for {purpose}: pip install 'isthmus[{extra}]'")
