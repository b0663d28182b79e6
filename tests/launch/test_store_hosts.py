"""A loop of one's own on two hosts, each with its own part alone: rows and neighbours cross by the store."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from dataclasses import replace

from beds import needs_testbed
from graphs import community_graph, cut
from listeners import listeners

from isthmus.comm.secret import new_secret
from isthmus.testbed import Testbed as Bed

SCRIPT = """
    import json, sys, torch
    import isthmus

    with isthmus.Worker(sys.argv[1], timeout=60) as worker:
        loader = isthmus.NeighborLoader(worker, [4, 4], "train", batch_size=8, seed=1)
        print("open", flush=True)
        sys.stdin.readline()
        rows = [[batch.n_id.tolist(), batch.x.sum(1).tolist()] for batch in loader]
        print(json.dumps([rows, sorted(worker.store().ledger.kinds)]), flush=True)
"""


@needs_testbed
def test_two_hosts_with_a_part_each(tmp_path):
    graph = replace(community_graph(), edge_attr=None)
    book = cut(graph, 2, "random", tmp_path)
    secret = new_secret()
    with Bed(3, "1gbit") as bed:
        workers = []
        for rank in range(2):
            copy = tmp_path / f"host-{rank}"
            shutil.copytree(book.folder, copy)
            shutil.rmtree(copy / f"part-{1 - rank}")
            place = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "ISTHMUS_SECRET": secret}
            place |= {"MASTER_ADDR": bed.hosts[0].address, "MASTER_PORT": "29500", "OMP_NUM_THREADS": "1"}
            command = bed.host(rank).command([sys.executable, "-c", textwrap.dedent(SCRIPT), str(copy)])
            how = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            workers.append(subprocess.Popen(command, env={**os.environ, **place}, **how))
        try:
            for rank, one in enumerate(workers):
                assert one.stdout.readline() == "open\n", one.stderr.read()
                assert set(listeners(one.pid)) <= {bed.hosts[rank].address}
            for one in workers:
                one.stdin.write("go\n")
                one.stdin.flush()
            said = [one.communicate(timeout=100) for one in workers]
        finally:
            for one in workers:
                one.kill()
                one.wait()
    assert [one.returncode for one in workers] == [0, 0], said
    for out, _ in said:
        rows, kinds = json.loads(out)
        assert {"features", "ids"} <= set(kinds)
        for nodes, sums in rows:
            assert abs(graph.x[nodes].sum(1) - sums).max() < 1e-5
