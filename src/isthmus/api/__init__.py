"""What `import isthmus` gives: the commands as functions, and `Worker` for a training loop of one's own."""

from isthmus.api.result import TrainResult
from isthmus.api.training import TrainOptions, predict, train
from isthmus.api.worker import Worker

__all__ = ["TrainOptions", "TrainResult", "Worker", "predict", "train"]
