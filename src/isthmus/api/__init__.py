"""The functions of `import isthmus`: the commands, and `Worker` for a user's own training loop."""

from isthmus.api.result import TrainResult
from isthmus.api.training import TrainOptions, predict, train
from isthmus.api.worker import Worker

__all__ = ["TrainOptions", "TrainResult", "Worker", "predict", "train"]
