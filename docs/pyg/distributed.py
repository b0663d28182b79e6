"""Full-graph training with PyG, on every process that torchrun starts."""

import torch
from torch.nn.functional import cross_entropy
from torch_geometric import seed_everything
from torch_geometric.datasets import FakeDataset
from torch_geometric.nn import SAGEConv
from torch_geometric.transforms import RandomNodeSplit

import isthmus


class Net(torch.nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.first = SAGEConv(features, 32)
        self.last = SAGEConv(32, classes)

    def forward(self, x, edge_index):
        x = self.first(x, edge_index).relu()
        return self.last(x, edge_index)


seed_everything(0)
data = RandomNodeSplit(num_val=0.2, num_test=0.2)(FakeDataset(num_classes=5)[0])
worker = isthmus.Worker(data)
model = Net(data.num_features, 5)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
worker.prepare(model, optimizer)

for epoch in range(30):
    model.train()
    optimizer.zero_grad()
    out = model(worker.x, worker.graph)
    loss = cross_entropy(out[worker.train_mask], worker.y[worker.train_mask])
    loss = worker.step(loss)
    worker.print(f"epoch {epoch}: loss {loss}")

worker.print(f"test accuracy {worker.evaluate(model)['test']}")
worker.close()
