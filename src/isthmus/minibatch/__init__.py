"""Mini-batches: seed nodes, their drawn neighbours, the rows of both, made ahead of the step that trains on them."""

from isthmus.minibatch.batch import Batch, BatchMaker
from isthmus.minibatch.make import NodeData, batch_maker
from isthmus.minibatch.policy import STRUCTURES, WAYS, BatchConfig, BatchPolicy, read_fanouts
from isthmus.minibatch.prefetch import Prefetcher

__all__ = [
    "STRUCTURES",
    "WAYS",
    "Batch",
    "BatchConfig",
    "BatchMaker",
    "BatchPolicy",
    "NodeData",
    "Prefetcher",
    "batch_maker",
    "read_fanouts",
]
