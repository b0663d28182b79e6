"""Read, check, store and generate whole graphs: structure, feature rows, labels and splits."""

from isthmus.graph.folder import open_graph, save_graph
from isthmus.graph.graph import Graph, SparseRows
from isthmus.graph.load import load
from isthmus.graph.pyg import from_pyg

__all__ = ["Graph", "SparseRows", "from_pyg", "load", "open_graph", "save_graph"]
