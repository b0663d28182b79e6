"""Train and predict on the full graph: the step, evaluation, checkpoints, the run record, predictions."""

from isthmus.engine.config import TrainConfig
from isthmus.engine.predict import PredictConfig, predict
from isthmus.engine.train import Result, train

__all__ = ["PredictConfig", "Result", "TrainConfig", "predict", "train"]
