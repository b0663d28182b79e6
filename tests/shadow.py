"""A pretend accelerator for tests: tensors on device "shadow" hold CPU memory, but behave as those of a device.

Whatever runs on "shadow" and gives the CPU's result has no hidden CPU tensor, no ``.numpy()``, no pointer taken from
the wrong memory, and hands nothing of a device to a process group of hosts. It says nothing about speed. Several
devices, "shadow:0" to "shadow:3", do not mix either. As on CUDA, numbers of the host (tensors without dimensions) may
take part in arithmetic, and ``tolist``, in-place changes of shape, ``.data =``, sparse CSR, pinned memory, generators
and autocast work.
"""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_iter, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "shadow"
DEVICES = 4
MOVES = {"_to_copy", "copy_", "_copy_from"}
HOST = torch.device("cpu")


class Shadow(torch.Tensor):
    """A tensor of the pretend device; ``held`` is its content on the CPU."""

    held: torch.Tensor
    __slots__ = ()

    @staticmethod
    def __new__(cls, held: torch.Tensor, index: int = 0) -> Shadow:
        layout: dict[str, Any] = {"dispatch_layout": True}  # of sparse tensors: `run` is asked for it
        if held.layout is torch.strided:
            # A storage of any size: the shape may grow in place, and `held` alone has memory.
            layout = {"strides": held.stride(), "storage_offset": held.storage_offset(), "storage_size": 1 << 50}
        made = torch.Tensor._make_wrapper_subclass(
            cls, held.shape, dtype=held.dtype, device=torch.device(NAME, index), **layout
        )
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Shadow({self.held!r}, {self.device})"

    def data_ptr(self) -> int:
        raise RuntimeError("a pointer to memory of the pretend device was asked for: nothing on the CPU may read it")

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def new_tensor(self, data: Any, *, dtype: Any = None, **options: Any) -> torch.Tensor:  # type: ignore[override]
        return torch.tensor(data, dtype=dtype or self.dtype, device=self.device)

    def __deepcopy__(self, memo: dict) -> Any:
        copied = self.detach().clone()
        if isinstance(self, torch.nn.Parameter):
            copied = torch.nn.Parameter(copied, self.requires_grad)
        else:
            copied.requires_grad_(self.requires_grad)
        memo[id(self)] = copied
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise RuntimeError("a tensor of the pretend device was pickled: bring it to the CPU first")

    @property
    def data(self) -> torch.Tensor:  # type: ignore[override]
        return Shadow(self.held.detach(), self.device.index)

    @data.setter
    def data(self, other: torch.Tensor) -> None:
        if not isinstance(other, Shadow) or other.device != self.device:
            raise RuntimeError(f"data of a tensor on {self.device} cannot become memory on {other.device}")
        self.held = other.held
        _follow(self)


def run(func: Any, args: Any, kwargs: Any, fresh: int | None = None) -> Any:
    """Run an operation on what its tensors hold, if all are on one device; ``fresh``: that of what has no inputs."""
    if func.namespace == "c10d":
        raise RuntimeError(f"{func}: a process group of hosts was given a tensor of the pretend device")
    if func is torch.ops.prim.layout.default:
        return args[0].held.layout
    name = func.overloadpacket.__name__
    given = [x for x in tree_iter((args, kwargs)) if isinstance(x, torch.Tensor)]
    places = {x.device for x in given if isinstance(x, Shadow) or x.dim()}
    if len(places) > 1 and name not in MOVES:
        raise RuntimeError(f"{func}: tensors on {' and '.join(sorted(map(str, places)))}")
    if torch.are_deterministic_algorithms_enabled() and _has_no_order(name, args, kwargs):
        raise RuntimeError(f"{func} has no deterministic implementation on CUDA")
    generator = next((x for x in tree_iter(kwargs) if isinstance(x, torch._C.Generator)), None)
    if generator is not None and generator._cdata not in _generators:
        raise RuntimeError(f"{func}: a generator of the CPU cannot draw on {NAME}")

    def plain(x: Any) -> Any:
        if isinstance(x, Shadow):
            return x.held
        return HOST if isinstance(x, torch.device) and x.type == NAME else x

    out = func(*tree_map(plain, args), **{k: v for k, v in tree_map(plain, kwargs).items() if k != "pin_memory"})
    for changed in _written(func, args, kwargs):
        if isinstance(changed, Shadow) and changed.held.layout is torch.strided:
            _follow(changed)
    asked = kwargs.get("device")
    index = next((x.device.index for x in given if isinstance(x, Shadow)), fresh)
    if asked is not None:
        index = torch.device(asked).index or 0 if torch.device(asked).type == NAME else None
    same = {id(x.held): x for x in given if isinstance(x, Shadow)}

    def wrapped(x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or index is None or isinstance(x, Shadow):
            return x
        return same[id(x)] if id(x) in same else Shadow(x, index)

    out = tree_map(wrapped, out)
    if name in MOVES or func.is_view is False or not given:
        mutated = _written(func, args, kwargs)
        return mutated[0] if len(mutated) == 1 and isinstance(out, torch.Tensor) else out
    return return_and_correct_aliasing(func, args, kwargs, out) if not _written(func, args, kwargs) else out


def _has_no_order(name: str, args: Any, kwargs: Any) -> bool:
    """Whether torch's notes on use_deterministic_algorithms say that CUDA refuses the operation then."""
    if name in ("cumsum", "cumsum_"):
        return (kwargs.get("dtype") or args[0].dtype).is_floating_point
    if name == "bincount":
        return len(args) > 1 and args[1] is not None
    if name.startswith("scatter_reduce"):
        return "prod" in args
    return name in ("histc", "put_", "median", "nanmedian", "kthvalue", "nll_loss2d_forward", "_embedding_bag")


@cache
def _writes(func: Any) -> list[tuple[int, str, bool]]:
    """Return place, name and kind of the arguments that an operation writes to."""
    found = enumerate(func._schema.arguments)
    return [(i, a.name, a.kwarg_only) for i, a in found if a.alias_info is not None and a.alias_info.is_write]


def _written(func: Any, args: Any, kwargs: Any) -> list[Any]:
    found = []
    for place, name, keyword in _writes(func):
        if not keyword and place < len(args):
            found.append(args[place])
        elif name in kwargs:
            found.append(kwargs[name])
    return found


def _follow(outer: Shadow) -> None:
    """Give a tensor the shape that what it holds has been given in place."""
    held = outer.held
    form = held.size(), held.stride(), held.storage_offset()
    if form == (outer.size(), outer.stride(), outer.storage_offset()):
        return
    with no_dispatch():
        before = torch._C._meta_in_tls_dispatch_include()
        torch._C._set_meta_in_tls_dispatch_include(True)
        try:
            torch.ops.aten.as_strided_.default(outer, *form)
        finally:
            torch._C._set_meta_in_tls_dispatch_include(before)


def _copy_from(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    held = [x.held if isinstance(x, Shadow) else x for x in (source, target)]
    held[1].copy_(held[0])
    return target


class Module(types.ModuleType):
    """``torch.shadow``: what torch asks of an accelerator's module."""

    def __init__(self) -> None:
        super().__init__(f"torch.{NAME}")
        self.free, self.total = 1 << 34, 1 << 34  # bytes that it claims to have
        self.visible = False  # whether it is found without being asked for

    def is_available(self) -> bool:
        return self.visible

    def is_initialized(self) -> bool:
        return True

    def _is_in_bad_fork(self) -> bool:
        return False

    def device_count(self) -> int:
        return DEVICES

    def current_device(self) -> int:
        return 0

    def set_device(self, device: Any) -> None:
        pass

    def synchronize(self, device: Any = None) -> None:
        pass

    def manual_seed_all(self, seed: int) -> None:
        pass

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        return self.free, self.total

    def can_device_access_peer(self, device: int, other: int) -> bool:
        return device // 2 == other // 2  # two pairs

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]


class Generator(torch._C.Generator):
    """A generator that may be asked for on the pretend device."""

    def __new__(cls, device: Any = "cpu") -> Generator:
        made = super().__new__(cls, "cpu")
        if torch.device(device).type == NAME:
            _generators[made._cdata] = made
        return made


_generators: dict[int, Any] = {}  # those that were asked for on the pretend device, by address
_pinned: set[int] = set()  # addresses of host memory that is "pinned"


def _pin(tensor: torch.Tensor, device: Any = None) -> torch.Tensor:
    copied = tensor.clone()
    _pinned.add(copied.data_ptr())
    return copied


_CAST = ("mm", "addmm", "bmm", "linear", "matmul")


def _autocast(library: torch.library.Library) -> None:
    """Cast what products are given to autocast's dtype, as it does on CUDA."""
    key = torch._C.DispatchKey.AutocastPrivateUse1

    def casting(name: str) -> Callable[..., Any]:
        packet = getattr(torch.ops.aten, name)

        def product(*given: Any, **options: Any) -> Any:
            dtype = torch.get_autocast_dtype(NAME)
            with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)):
                return packet(
                    *(x.to(dtype) if isinstance(x, Shadow) and x.dtype == torch.float32 else x for x in given)
                )

        return product

    for name in _CAST:
        library.impl(name, casting(name), "AutocastPrivateUse1")


@cache
def install() -> Module:
    """Let torch have the device "shadow" from now on; once per process."""
    module = Module()
    _setup_privateuseone_for_python_backend(NAME, backend_module=module)
    everything, aten = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    everything.fallback(lambda func, *args, **kwargs: run(func, args, kwargs, 0), "PrivateUse1")
    everything.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    aten.impl("_copy_from", _copy_from, "PrivateUse1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        aten.impl("_pin_memory", _pin, "CPU")
        aten.impl("is_pinned", lambda tensor, device=None: tensor.data_ptr() in _pinned, "CPU")
    _autocast(aten)
    torch.Generator = Generator  # type: ignore[misc,assignment]
    module.libraries = everything, aten  # type: ignore[attr-defined]
    return module


@contextmanager
def one_thread() -> Iterator[None]:
    """Run backward passes in the thread that asks: workers that share a thread would wait for each other for ever."""
    with torch.autograd.set_multithreading_enabled(False):
        yield
