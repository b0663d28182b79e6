"""Read a graph from any supported kind of input: ``load(source) → Graph``."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from isthmus.errors import InputError, enough_memory
from isthmus.files import unreadable
from isthmus.graph.blocks import Progress
from isthmus.graph.folder import is_graph_folder, open_graph
from isthmus.graph.graph import Graph
from isthmus.graph.held_out import hold_out
from isthmus.graph.npz import read_npz
from isthmus.graph.ogb import find_ogb, is_ogb, read_ogb
from isthmus.graph.options import LoadOptions
from isthmus.graph.pyg import is_data, read_data, read_pyg
from isthmus.graph.raw import RawGraph, assemble
from isthmus.graph.synthetic import synthetic
from isthmus.graph.tables import read_tables
from isthmus.options import options_of, shows

FORMS = (
    "an .npz file, a folder with edges and nodes as .parquet or .csv, a graph folder, ogb:NAME, pyg:NAME, "
    "or synthetic:NAME@SCALE"
)


@shows(options_of(LoadOptions))
def load(source: Any, *, progress: Progress | None = None, **options: Any) -> Graph:
    """Read, check and sort a graph.

    Args:
        source: path of an ``.npz`` file; path of a folder with ``edges`` and ``nodes`` as Parquet or CSV, with an OGB
            dataset, or written by ``save_graph`` (memory-mapped); ``ogb:NAME``; ``pyg:NAME``;
            ``synthetic:NAME@SCALE?option=value``; a PyG ``Data`` object; or a ``Graph``, which is returned as it is.
        undirected: add the reverse of every edge.
        directed: keep one-directional edges as they are; without either option they are an error.
        multi_edges: what becomes of parallel edges: their weights (first, sum, mean or max), or keep, all of them.
        task: classes or regression; None: regression if y has values that are no whole numbers.
        hold_out: the share of the edges that is kept back, to score links by.
        progress: called as ``progress(what, done, total)`` now and then.
    """
    how = LoadOptions(**options)
    if isinstance(source, Graph):
        graph = _as_it_is(source, how.undirected)
        return hold_out(graph, how.hold_out) if how.hold_out else graph
    name = os.fspath(source) if isinstance(source, str | os.PathLike) else "this graph"
    try:
        with enough_memory(name):
            graph = _load(source, how, progress)
            return hold_out(graph, how.hold_out) if how.hold_out else graph
    except OSError as error:
        raise unreadable(name, error) from error


def _load(source: Any, how: LoadOptions, progress: Progress | None) -> Graph:
    if is_data(source):
        return assemble(read_data(source, "data"), how)
    if not isinstance(source, (str, os.PathLike)):
        raise InputError(f"{type(source).__name__} is not a graph: give {FORMS}, a PyG Data object or a Graph")
    kind, _, name = os.fspath(source).partition(":")
    if kind == "synthetic":
        return synthetic(name, progress)
    if progress is not None:
        progress(f"reading {source}", 0, 1)
    if kind == "pyg":
        raw = read_pyg(name, data_roots())
    elif kind == "ogb":
        raw, one_way = read_ogb(find_ogb(name, data_roots()))
        how = replace(how, undirected=how.undirected or (one_way and not how.directed))
    else:
        path = Path(source)
        if path.is_dir() and is_graph_folder(path):
            return _as_it_is(open_graph(path), how.undirected)
        if path.is_dir() and is_ogb(path):
            raw, one_way = read_ogb(path)
            how = replace(how, undirected=how.undirected or (one_way and not how.directed))
        else:
            raw = _read_path(path)
    return assemble(raw, how)


def _as_it_is(graph: Graph, undirected: bool) -> Graph:
    if undirected and not graph.symmetric:
        raise InputError(f"{graph.name} was made with --directed: give its original source with --undirected")
    return graph


def _read_path(path: Path) -> RawGraph:
    if not path.exists():
        raise InputError(f"{path} does not exist: give {FORMS}")
    if path.is_file():
        if path.suffix != ".npz":
            raise InputError(f"{path} is not an .npz file: give {FORMS}")
        return read_npz(path)
    if (path / "book.json").exists():
        raise InputError(f"{path} holds parts, not a graph: give it to a command that takes parts, e.g. isthmus train")
    if not any(path.glob("edges.*")):
        raise InputError(f"{path} has neither edges.parquet, edges.csv, graph.json nor raw/: give {FORMS}")
    return read_tables(path)


def data_roots() -> list[Path]:
    """Return the folders of named datasets: $ISTHMUS_DATA or ~/.cache/isthmus.

    Never the working folder, which is OGB's default: PyG and OGB unpickle the files in their caches, so anyone who can
    write to the working folder could run code here.
    """
    home = os.environ.get("ISTHMUS_DATA")
    return [Path(home) if home else Path.home() / ".cache" / "isthmus"]
