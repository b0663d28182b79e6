"""Mini-batches: seed nodes, their drawn neighbours, the rows of both, made ahead of the step that trains on them."""

from isthmus.minibatch.batch import Batch, BatchMaker
from isthmus.minibatch.dag import Operators, sampling_dag
from isthmus.minibatch.make import NodeData, batch_maker
from isthmus.minibatch.pipeline import Pipeline
from isthmus.minibatch.policy import STRUCTURES, WAYS, BatchConfig, BatchPolicy, DagPolicy, read_fanouts
from isthmus.minibatch.prefetch import Prefetcher
from isthmus.minibatch.scheduler import SCHEDULERS, make_scheduler

__all__ = [
    "SCHEDULERS",
    "STRUCTURES",
    "WAYS",
    "Batch",
    "BatchConfig",
    "BatchMaker",
    "BatchPolicy",
    "DagPolicy",
    "NodeData",
    "Operators",
    "Pipeline",
    "Prefetcher",
    "batch_maker",
    "make_scheduler",
    "read_fanouts",
    "sampling_dag",
]
