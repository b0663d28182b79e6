"""The full-graph step, evaluation, checkpoints, the run record."""

from isthmus.engine.config import TrainConfig
from isthmus.engine.train import Result, train

__all__ = ["Result", "TrainConfig", "train"]
