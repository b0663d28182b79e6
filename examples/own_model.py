"""Train a model of your own: any module that calls the graph it is given.

python own_model.py                                            (in this folder: workers import the model by its name)
isthmus train synthetic:flickr@0.02 --model own_model:Net      (the same as a command)
"""

import torch
from torch import nn

import isthmus


class Net(nn.Module):
    """Two rounds of mean aggregation, each added to what was there."""

    def __init__(self, features, classes, hidden=32):
        super().__init__()
        self.first, self.last = nn.Linear(features, hidden), nn.Linear(hidden, classes)

    def forward(self, graph, x):
        x = torch.relu(self.first(x))
        for _ in range(2):
            x = x + graph.aggregate(x, "mean")  # rows of other workers are fetched here
        return self.last(x)


if __name__ == "__main__":
    print(isthmus.train("synthetic:flickr@0.02", model="own_model:Net", workers=2, hidden=16, steps=40))
