"""The command testbed, which makes a narrow network on this machine."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from isthmus.cli.shared import Json, app, err, of_workers, show
from isthmus.errors import InputError

if TYPE_CHECKING:
    from isthmus.testbed import Testbed

Link = Annotated[str | None, of_workers(help="Rate of every host's link, such as 300mbit or 1gbit; needs root.")]


@app.command("testbed", context_settings={"allow_interspersed_args": False})
def bed(
    command: Annotated[list[str] | None, typer.Argument(help="Run on every host; default: wait for Ctrl-C.")] = None,
    hosts: Annotated[int, of_workers(help="How many.")] = 2,
    link: Link = "1gbit",
    workers_per_host: Annotated[int, of_workers(help="How often the command runs on each host.")] = 1,
    sweep: Annotated[bool, typer.Option("--sweep", help="Only remove what killed testbeds have left.")] = False,
    as_json: Json = False,
) -> None:
    """Make hosts with narrow links on this machine and run a command on each, as torchrun would start it. Needs root.

    Example: isthmus testbed --hosts 4 --link 300mbit -- isthmus train parts --out run
    """
    quiet_torch()
    from isthmus.testbed import Testbed, measure, run_on_hosts, tools, written
    from isthmus.testbed import sweep as sweep_up

    tools.check()
    if workers_per_host < 1:
        raise InputError(f"workers-per-host must be at least 1, not {workers_per_host}")
    if sweep:
        removed = sweep_up()
        show({"removed": removed}, f"removed {len(removed)} namespace(s)", as_json)
        return
    with Testbed(hosts, link or "1gbit") as made:
        if command:
            before = made.counters()
            status = run_on_hosts(made, command, workers_per_host)
            sent = (made.counters() - before).sent
            err.print(f"{sent:,} bytes left the {hosts} host(s) over links of {written(made.rate)}", highlight=False)
            if status:
                raise typer.Exit(status)
            return
        with suppress(KeyboardInterrupt):
            _tell(made, measure(made) if hosts > 1 else None, as_json)
            while True:
                time.sleep(1)


def _tell(made: Testbed, reached: float | None, as_json: bool) -> None:
    """Print how to enter the hosts, and how fast their links are."""
    from isthmus.testbed import written

    table = Table("host", "address", "enter it", title=f"links of {written(made.rate)}")
    for place, host in enumerate(made.hosts):
        table.add_row(str(place), host.address, f"ip netns exec {host.name} bash")
    hosts = [{"name": host.name, "address": host.address} for host in made.hosts]
    show({"hosts": hosts, "rate": made.rate, "measured": reached}, table, as_json)
    speed = "" if reached is None else f"a plain TCP stream reaches {written(reached)}; "
    err.print(f"{speed}Ctrl-C ends the testbed", highlight=False)


def quiet_torch() -> None:
    """Silence torch's warnings about hosts without names, as those of a testbed are; call it before torch loads."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
