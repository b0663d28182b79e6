"""The functions of `import isthmus`: the commands, and `Worker` for a user's own training loop."""

from isthmus.api.keywords import PredictOptions, TrainOptions, WorkerOptions
from isthmus.api.result import TrainResult
from isthmus.api.training import predict, train
from isthmus.api.worker import Worker

__all__ = ["PredictOptions", "TrainOptions", "TrainResult", "Worker", "WorkerOptions", "predict", "train"]
