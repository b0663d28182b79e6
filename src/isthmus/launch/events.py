"""Write the metrics of a run as TensorBoard event files while it runs (extra: tensorboard)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from isthmus.errors import InputError
from isthmus.files.atomic import writing

FOLDER = "tensorboard"  # inside the run folder


def check_available() -> None:
    if find_spec("tensorboard") is None:
        raise InputError("--tensorboard needs the tensorboard package: pip install 'isthmus[tensorboard]'")


@contextmanager
def events(folder: Path | None) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Give a watcher of training that writes event files into `folder`; without a folder it does nothing."""
    if folder is None:
        yield lambda line: None
        return
    from tensorboard.compat.proto.event_pb2 import Event, SessionLog
    from tensorboard.compat.proto.summary_pb2 import Summary
    from torch.utils.tensorboard import FileWriter

    writer: FileWriter | None = None

    def watch(line: dict[str, Any]) -> None:
        nonlocal writer
        with writing(folder):
            if writer is None:  # START makes TensorBoard discard what an earlier attempt wrote from this step on
                writer = FileWriter(str(folder))
                writer.add_event(Event(session_log=SessionLog(status=SessionLog.START)), line["step"])
            # All values of a step form one event, since SummaryWriter would take several times as long.
            values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars(line).items()]
            writer.add_summary(Summary(value=values), line["step"])

    try:
        yield watch
    finally:
        if writer is not None:
            writer.close()


def scalars(line: dict[str, Any]) -> dict[str, float]:
    """Return the values of a step under the names that TensorBoard groups: loss, score/val, seconds/wait, …"""
    return {
        "loss": line["loss"],
        **{f"score/{name}": line[name] for name in ("train", "val", "test") if name in line},
        **{f"error/{name}": value for name, value in line.get("error", {}).items()},
        **({"error/gradient": line["gradient_error"]} if "gradient_error" in line else {}),
        **{f"seconds/{name}": value for name, value in line["split"].items()},
        "bytes": line["bytes"],
    }
