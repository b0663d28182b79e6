"""What this installation has, what of it is slow, and how to mend that."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from importlib import metadata

import torch
import torch.distributed as dist

import isthmus
from isthmus.kernels import native
from isthmus.launch.place import detect, threads_for
from isthmus.partition import metis

EXTRAS = {
    "torch_geometric": ("pyg", "PyG models and pyg: datasets"),
    "ogb": ("ogb", "downloading ogb: datasets"),
    "pyarrow": ("parquet", "Parquet files"),
}


@dataclass(frozen=True)
class Finding:
    name: str
    value: str
    advice: str = ""


def examine() -> list[Finding]:
    """Every finding, the good and the bad."""
    return [
        Finding("python", f"{platform.python_version()} on {platform.machine()}"),
        Finding("isthmus", isthmus.__version__),
        Finding("torch", torch.__version__),
        _core(),
        _metis(),
        Finding("threads", str(threads_for(1, None)), "shared out among the workers of a machine; --threads sets them"),
        _backend(),
        _launcher(),
        *(_extra(module, *about) for module, about in EXTRAS.items()),
    ]


def _core() -> Finding:
    if os.environ.get("ISTHMUS_NATIVE") == "0":
        return Finding("native core", "off", "ISTHMUS_NATIVE=0 asks for the torch twins, 3–10× slower: unset it")
    file = native.path()
    if file is None:
        return Finding(
            "native core",
            "missing",
            "aggregation runs as torch twins, 3–10× slower: install a C++ compiler (g++ or clang), then "
            "pip install --force-reinstall --no-deps isthmus",
        )
    level = file.name.removeprefix("_core_").split(".")[0]
    return Finding("native core", level, "" if native.core() is not None else f"{file.name} does not load: reinstall")


def _metis() -> Finding:
    if not metis.available():
        return Finding("metis", "missing", "only random, blocks and ldg can cut graphs: pip install pymetis")
    return Finding("metis", f"pymetis {metadata.version('pymetis')}")


def _backend() -> Finding:
    if not dist.is_available():
        return Finding("backend", "missing", "this torch has no torch.distributed: install another build of torch")
    return Finding("backend", "gloo")


def _launcher() -> Finding:
    place = detect()
    if place is None:
        return Finding("launcher", "none", "train starts its own workers on this machine")
    return Finding("launcher", place.launcher, f"worker {place.rank} of {place.size}, meeting at {place.host}")


def _extra(module: str, extra: str, purpose: str) -> Finding:
    try:
        return Finding(module, metadata.version(module))
    except metadata.PackageNotFoundError:
        return Finding(module, "not installed", f"only for {purpose}: pip install 'isthmus[{extra}]'")
