"""Start workers as processes of this machine."""

from __future__ import annotations

import json
import subprocess
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from isthmus.comm.rendezvous import Rendezvous
from isthmus.comm.secret import new_secret
from isthmus.engine.record import write_json
from isthmus.launch.job import Job
from isthmus.launch.supervise import COMMAND, LOOPBACK, Meeting, signals, spawn, supervise, variables
from isthmus.launch.wire import crossed
from isthmus.testbed import Host, Testbed


def start(job: Job, workers: int, testbed: Testbed | None = None) -> dict[str, Any]:
    """Run the job on `workers` processes and return worker 0's summary; no process outlives this call.

    With a testbed they run on its hosts in equal blocks, and the summary's ``link`` has the traffic on its links.
    """
    # The meeting point is in this process, so no other program can take its port between choice and use.
    address, secret = "127.0.0.1" if testbed is None else testbed.address, new_secret()
    with nullcontext() if testbed is None else testbed.entered():
        point = Rendezvous(address, 0, workers, secret.encode())
    before = None if testbed is None else testbed.counters()
    with tempfile.TemporaryDirectory(prefix="isthmus-") as folder, point, signals(job) as stop:
        hosts = [None if testbed is None else testbed.host(rank, workers) for rank in range(workers)]
        meeting = Meeting(address, point.port, secret)
        told = [variables(job, rank, workers, workers, meeting) for rank in range(workers)]
        processes = [_spawn({**one, "ISTHMUS_ANSWERS": folder}, host) for one, host in zip(told, hosts, strict=True)]
        supervise(job, processes, stop, Path(folder))
        summary = json.loads((Path(folder) / "summary").read_text())
        if testbed is not None and before is not None:
            sent = [json.loads((Path(folder) / f"sent-{rank}").read_text()) for rank in range(workers)]
            summary["link"] = crossed(testbed, testbed.counters() - before, sent)
            if job.out is not None:
                write_json(Path(job.out) / "summary.json", summary)
        return summary


def _spawn(told: dict[str, str], host: Host | None) -> subprocess.Popen:
    if host is not None:
        return spawn({**told, **host.environ}, host.command(COMMAND))
    # Workers of one machine need no name resolution and no outside interface, whatever the environment says.
    return spawn({"GLOO_SOCKET_IFNAME": LOOPBACK, **told})
