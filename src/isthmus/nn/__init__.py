"""Models, written once against LocalGraph, and the adapter for PyG's convolutions."""

from isthmus.nn.calling import LocalData
from isthmus.nn.layers import GATConv, GCNConv, SAGEConv
from isthmus.nn.models import GAT, GCN, MODELS, SAGE, Model, ModelConfig
from isthmus.nn.norms import norms_of
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
    "LocalData",
    "Model",
    "ModelConfig",
    "SAGEConv",
    "distribute",
    "norms_of",
    "own_model",
]
