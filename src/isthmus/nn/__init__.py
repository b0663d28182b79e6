"""Models, written once against LocalGraph, and the adapter for PyG's convolutions."""

from isthmus.nn.layers import GATConv, GCNConv, SAGEConv
from isthmus.nn.models import GAT, GCN, MODELS, SAGE, Model, ModelConfig
from isthmus.nn.own import own_model
from isthmus.nn.pyg import Halo, distribute

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
    "distribute",
    "own_model",
]
