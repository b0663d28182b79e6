"""Models, written once against LocalGraph, and the adapter for PyG's convolutions."""

from isthmus.nn.layers import GATConv, GCNConv, SAGEConv, linear, propagate
from isthmus.nn.models import GAT, GCN, MODELS, SAGE, Model, ModelConfig
from isthmus.nn.pyg import Halo

__all__ = [
    "GAT",
    "GCN",
    "MODELS",
    "SAGE",
    "GATConv",
    "GCNConv",
    "Halo",
    "Model",
    "ModelConfig",
    "SAGEConv",
    "linear",
    "propagate",
]
