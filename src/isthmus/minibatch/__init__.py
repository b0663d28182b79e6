"""Mini-batches: seed nodes, their drawn neighbours, the rows of both, made ahead of the step that trains on them."""

from isthmus.minibatch.batch import Batch, BatchMaker, Neighbourhoods
from isthmus.minibatch.dag import Operators, sampling_dag
from isthmus.minibatch.learnt import LearntRows, learnt_rows
from isthmus.minibatch.make import NodeData, batch_maker, other_fanouts
from isthmus.minibatch.pairs import PairPolicy, Pairs
from isthmus.minibatch.pipeline import Pipeline
from isthmus.minibatch.policy import ROWS, STRUCTURES, WAYS, BatchConfig, BatchPolicy, DagPolicy, read_fanouts
from isthmus.minibatch.prefetch import Prefetcher
from isthmus.minibatch.scheduler import SCHEDULERS, make_scheduler

__all__ = [
    "ROWS",
    "SCHEDULERS",
    "STRUCTURES",
    "WAYS",
    "Batch",
    "BatchConfig",
    "BatchMaker",
    "BatchPolicy",
    "DagPolicy",
    "LearntRows",
    "Neighbourhoods",
    "NodeData",
    "Operators",
    "PairPolicy",
    "Pairs",
    "Pipeline",
    "Prefetcher",
    "batch_maker",
    "learnt_rows",
    "make_scheduler",
    "other_fanouts",
    "read_fanouts",
    "sampling_dag",
]
