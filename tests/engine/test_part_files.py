"""Feature rows from the files of other parts: the same bits as from their owners, and no bytes on the way."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from exactly import config
from graphs import community_graph, cut, sparse_rows
from products import pairwise

from isthmus.comm import Hub
from isthmus.engine import train
from isthmus.engine.prepare import prepare
from isthmus.errors import InputError
from isthmus.features.part_files import PartFiles
from isthmus.partition import Book
from isthmus.recipes import find


def trained(book, asked, hosts=1, folder_of=None, recipe="distdgl", **settings):
    """Losses of all steps, final weights, and the summary; workers are threads on some pretended hosts."""
    losses = []

    def work(transport):
        own = book if folder_of is None else Book.read(folder_of(transport.rank))
        watch = (lambda line: losses.append(line["loss"])) if transport.rank == 0 else None
        return train(own, asked, transport, policy=find(recipe).policy(settings), watch=watch)

    result = Hub(book.num_parts, hosts=hosts).run(work)[0]
    return losses, torch.cat([p.detach().flatten() for p in result.model.parameters()]), result.summary


def steps(**changes):
    return config("sage", **{"batch_size": 13, "fanout": "4,3,2", "steps": 5, "eval_every": 5, **changes})


def assert_same(one, other):
    assert one[0] == other[0]
    assert torch.equal(one[1], other[1])


@pytest.mark.parametrize(
    *pairwise(
        features=["raw", "rows", "standard"],
        dtype=["float32", "float64"],
        sparse=[False, True],
        structure=["here", "owner"],
        recipe=["distdgl", "bytegnn"],
        precision=["fp32", "bf16"],
    )
)
def test_files_hold_the_rows_of_owners(tmp_path, features, dtype, sparse, structure, recipe, precision):
    graph = community_graph()
    graph = replace(graph, x=sparse_rows(graph.x)) if sparse else graph
    book = cut(graph, 3, "random", tmp_path)
    asked = steps(features=features, dtype=dtype, structure=structure)
    settings = {"precision": precision if dtype == "float32" else "fp32", "cache_rows": 0}
    there, here = (trained(book, replace(asked, rows=rows), recipe=recipe, **settings) for rows in ("owner", "host"))
    assert_same(there, here)
    assert here[2]["bytes_per_step"]["features"] == 0
    assert (there[2]["rows"]["from_files"], here[2]["rows"]["sent"]) == (0, 0)
    assert here[2]["rows"]["from_files"] == there[2]["rows"]["sent"] > 0


def test_other_hosts_are_asked_unless_their_files_are_wanted(tmp_path):
    book = cut(community_graph(), 4, "random", tmp_path)
    none, some, every = (trained(book, steps(rows=rows), hosts=2, cache_rows=0.2) for rows in ("owner", "host", "here"))
    assert_same(none, some)
    assert_same(none, every)
    assert none[2]["bytes_per_step"]["features"] > some[2]["bytes_per_step"]["features"] > 0
    assert every[2]["bytes_per_step"]["features"] == 0
    assert 0 < some[2]["rows"]["from_files"] < every[2]["rows"]["from_files"]
    assert some[2]["between_hosts"]["bytes_per_step"] > 0


def test_parts_that_a_copy_leaves_out_are_asked_for(tmp_path):
    book = cut(community_graph(), 2, "random", tmp_path)
    shutil.copytree(book.folder, tmp_path / "copy", ignore=shutil.ignore_patterns("part-0"))
    folder_of = [book.folder, tmp_path / "copy"].__getitem__
    whole = trained(book, steps(rows="owner", structure="owner"))
    assert_same(whole, trained(book, steps(structure="owner"), folder_of=folder_of))
    with pytest.raises(InputError, match="--batch apart"):
        trained(book, steps(batch="together", rows="here"))


def file_of(tensor):
    """The file that is mapped at the place of a tensor's memory."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, *_, name = line.split()
        first, last = (int(end, 16) for end in span.split("-"))
        if first <= tensor.data_ptr() < last:
            return name
    return None


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="this system does not tell what memory is mapped")
def test_rows_stay_in_their_files(tmp_path):
    """Neither a worker's own rows nor those of others are ever copied as a whole."""
    book = cut(community_graph(2000), 2, "random", tmp_path)

    def work(transport):
        views = prepare(book, steps(), find("distdgl").policy({}), transport)[0]
        other = 1 - transport.rank
        files = PartFiles.of(book, [other], torch.float64, views.train.data.scaling)
        return [file_of(views.train.data.x), file_of(files.table.pieces[other])]

    names = [str(book.folder / f"part-{k}" / "x.npy") for k in (0, 1)]
    assert Hub(2).run(work) == [names, names[::-1]]
