"""Tools of the fuzz tests: how many cases there are, what may come of one, and ways to spoil files.

Every case ends well or with an `InputError` of one line: nothing else is raised, nobody waits, and memory is bounded.
Cases are drawn from a fixed seed: 1,000 in all by `make test`, 50,000 by `make fuzz`.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from isthmus.errors import InputError

CASES = int(os.environ.get("ISTHMUS_FUZZ_CASES", "1000"))
SHARES = {"npz": 0.25, "tables": 0.2, "data": 0.2, "folder": 0.1, "parts": 0.1, "run": 0.075, "config": 0.075}
MEMORY = 2 << 30  # bytes beyond what the process has, of addresses
PATIENCE = 60.0  # seconds of a case, on a machine with other work


def cases(kind: str, share: float = 1.0) -> Callable:
    """The settings of one generator: its share of all cases."""
    return settings(
        max_examples=max(1, round(CASES * SHARES[kind] * share)),
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )


@pytest.fixture(scope="module", autouse=True)
def bounds():
    """Little memory beyond what there is, and little that may be unpacked."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY, hard))
    os.environ["ISTHMUS_MAX_UNPACKED"] = "4MiB"
    yield
    del os.environ["ISTHMUS_MAX_UNPACKED"]
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


class Hang(BaseException):
    """A case that takes too long."""


@contextmanager
def survives() -> Iterator[None]:
    """A block that ends well or with an InputError of one line, in time, and without a warning beside it."""

    def give_up(*_: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            yield
    except InputError as error:
        text = str(error)
        assert text.isprintable()
        assert ": " in text or " must be " in text, f"no remedy: {text}"
        assert len(text) <= 1000
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def scratch(of: Path | None = None) -> Iterator[Path]:
    """A folder for one case, a copy of another if need be."""
    above = Path(tempfile.mkdtemp(prefix="isthmus-fuzz-"))
    try:
        yield above if of is None else shutil.copytree(of, above / of.name)
    finally:
        shutil.rmtree(above, ignore_errors=True)


ODD_NUMBERS = [0, 1, -1, 2, 5, 6, 7, 0.5, float("nan"), float("inf"), -float("inf"), 1e30, 2**31 - 1, -(2**31), 2**62]
DTYPES = ["?", "i1", "i4", "i8", ">i4", ">f8", "u1", "u8", "f2", "f4", "f8", "g", "c8", "U3", "S3", "M8[s]", "V4"]
SHAPES = [
    (), (0,), (1,), (2,), (5,), (6,), (7,), (12,), (6, 1), (6, 0), (0, 6), (6, 2), (6, 3), (2, 12), (12, 2), (2, 0),
    (1, 12), (3, 12), (6, 2, 1), (1, 1, 1),
]  # fmt: skip


@st.composite
def arrays(draw: Any) -> np.ndarray:
    """Any array of few numbers, odd ones among them."""
    shape, dtype = draw(st.sampled_from(SHAPES)), draw(st.sampled_from(DTYPES))
    array = np.full(shape, draw(st.sampled_from([0, 1, 2])), np.float64)
    if array.size and draw(st.booleans()):
        array.reshape(-1)[draw(st.integers(0, array.size - 1))] = draw(st.sampled_from(ODD_NUMBERS))
    with np.errstate(all="ignore"):
        if np.dtype(dtype).kind in "MV":
            return np.zeros(shape, dtype)
        return array.astype(dtype)


def spoil_bytes(draw: Any, content: bytes) -> bytes:
    """Some bits flipped, some bytes cut off, doubled or overwritten."""
    changed = bytearray(content)
    for _ in range(draw(st.integers(1, 3))):
        if not changed:
            break
        place = draw(st.integers(0, len(changed) - 1))
        how = draw(st.sampled_from(["flip", "cut", "double", "zero", "put"]))
        if how == "flip":
            changed[place] ^= 1 << draw(st.integers(0, 7))
        elif how == "cut":
            del changed[place:]
        elif how == "double":
            changed[place:place] = changed[max(0, place - 20) : place]
        elif how == "zero":
            changed[place : place + 8] = bytes(len(changed[place : place + 8]))
        else:
            changed[place : place + 4] = draw(st.binary(min_size=4, max_size=4))
    return bytes(changed)


def spoil_file(draw: Any, path: Path) -> None:
    """Other bytes, or something that is no file."""
    how = draw(st.sampled_from(["bytes", "bytes", "bytes", "gone", "pipe", "folder", "zero", "empty"]))
    content = path.read_bytes()
    path.unlink()
    if how == "bytes":
        path.write_bytes(spoil_bytes(draw, content))
    elif how == "pipe":
        os.mkfifo(path)
    elif how == "folder":
        path.mkdir()
    elif how == "zero":
        path.symlink_to("/dev/zero")
    elif how == "empty":
        path.touch()


ODD_JSON = st.one_of(
    st.sampled_from([None, True, False, 0, 1, -1, 2**31, 2**63, 10**400, 0.5, float("nan"), float("inf")]),
    st.sampled_from(["", "..", "../..", "a\nb", "/dev/zero", "x" * 5000, "\ud800", "subprocess:call", "os:abort"]),
    st.sampled_from([[], {}, [[]], [1, "a"], {"a": 1}, ["touch", "MARK"], {"model": "os:abort"}]),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.one_of(st.integers(), st.text(max_size=3), st.none()), max_size=4),
)


def spoil_json(draw: Any, content: Any) -> Any:
    """Some values of other types, some missing, some new; anywhere in it."""
    for _ in range(draw(st.integers(1, 2))):
        content = _spoiled(draw, content)
    return content


def _spoiled(draw: Any, content: Any) -> Any:
    if isinstance(content, dict) and content and draw(st.integers(0, 5)):
        name = draw(st.sampled_from(sorted(content)))
        how = draw(st.sampled_from(["deeper", "deeper", "deeper", "gone", "new"]))
        if how == "gone":
            return {key: value for key, value in content.items() if key != name}
        if how == "new":
            return {**content, draw(st.text(max_size=5)): draw(ODD_JSON)}
        return {**content, name: _spoiled(draw, content[name])}
    if isinstance(content, list) and content and draw(st.integers(0, 3)):
        place = draw(st.integers(0, len(content) - 1))
        return [*content[:place], _spoiled(draw, content[place]), *content[place + 1 :]]
    if isinstance(content, int) and not isinstance(content, bool) and draw(st.booleans()):
        return content + draw(st.sampled_from([-1, 1, 2, 100, -content, -2 * content - 1, 10**9, 2**40]))
    return draw(ODD_JSON)


def write_json(draw: Any, path: Path, content: Any) -> None:
    """Json as it was spoiled, or now and then so deep that parsers give up."""
    text = json.dumps(content)
    if not draw(st.integers(0, 15)):
        depth = draw(st.sampled_from([40, 60, 500, 900, 990, 100_000]))
        text = draw(st.sampled_from(["[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth]))
    path.write_text(text, errors="surrogatepass")
