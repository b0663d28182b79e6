"""Samplers: each draws the graph that a step trains on from the whole one."""

from isthmus.sample.blocks import Block, Blocks, Expansion, Numbering
from isthmus.sample.boundary import Boundary
from isthmus.sample.clusters import Clusters
from isthmus.sample.joint import JointDraw, JointSampler, Scene
from isthmus.sample.last_layer import FEW_NEEDED, LastLayer
from isthmus.sample.layer_wise import LayerWise
from isthmus.sample.neighbour_sampler import NeighbourSampler
from isthmus.sample.neighbours import Neighbours
from isthmus.sample.optimal_boundary import OptimalBoundary
from isthmus.sample.random_edges import RandomEdges
from isthmus.sample.row_norms import RowNorms
from isthmus.sample.saint import Saint
from isthmus.sample.schedule import Sampler, Schedule
from isthmus.sample.structure import Structure

__all__ = [
    "FEW_NEEDED",
    "Block",
    "Blocks",
    "Boundary",
    "Clusters",
    "Expansion",
    "JointDraw",
    "JointSampler",
    "LastLayer",
    "LayerWise",
    "NeighbourSampler",
    "Neighbours",
    "Numbering",
    "OptimalBoundary",
    "RandomEdges",
    "RowNorms",
    "Saint",
    "Sampler",
    "Scene",
    "Schedule",
    "Structure",
]
