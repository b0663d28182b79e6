"""The command line, kept thin: read options, call other rooms, print the result."""

from __future__ import annotations

import os
import signal
import sys
from typing import Annotated

import typer
from rich.markup import escape

import isthmus
from isthmus.cli import comparing, info, network, partition, planning, training
from isthmus.cli.shared import app, err
from isthmus.errors import InputError, Stopped, WorkerError, enough_memory
from isthmus.files import os_error_line
from isthmus.launch.exit import leave
from isthmus.launch.memory import use_huge_pages

__all__ = ["app", "comparing", "info", "main", "network", "partition", "planning", "training"]


def main() -> None:
    """Run the command line. Exit status: 0 success, 2 wrong input, 3 a worker failed, 130 or 143 ended by a signal."""
    use_huge_pages()
    joined = "RANK" in os.environ or "SLURM_PROCID" in os.environ
    if not joined:  # unless it raises, SIGTERM ends a process without running its context managers
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        with enough_memory("this command"):
            app()
        status = 0
    except SystemExit as end:
        status = int(end.code or 0)
        if status == 130:
            err.print("interrupted")
    except Stopped as end:
        if str(end):  # worker 0 prints it for all
            err.print(escape(str(end)), soft_wrap=True, highlight=False)
        status = end.status
    except (InputError, WorkerError) as error:
        err.print(f"[red]error:[/] {escape(str(error))}", soft_wrap=True)
        status = 2 if isinstance(error, InputError) else 3
    except OSError as error:
        err.print(f"[red]error:[/] {escape(os_error_line(error))}", soft_wrap=True)
        status = 2
    if joined:
        leave(status)
    sys.exit(status)


def _version(asked: bool) -> None:
    if asked:
        print(isthmus.__version__)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    pass
