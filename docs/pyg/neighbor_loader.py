"""Mini-batch training with PyG, in one process. The loader is Isthmus', since PyG's own needs pyg-lib."""

import torch
from torch.nn.functional import cross_entropy
from torch_geometric import seed_everything
from torch_geometric.datasets import FakeDataset
from torch_geometric.nn import SAGEConv
from torch_geometric.transforms import RandomNodeSplit

from isthmus import NeighborLoader


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
loader = NeighborLoader(data, [10, 5], input_nodes=data.train_mask, batch_size=64, shuffle=True)
model = Net(data.num_features, 5)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

for epoch in range(10):
    for batch in loader:
        optimizer.zero_grad()
        out = model(batch.x, batch.edge_index)[: batch.batch_size]
        loss = cross_entropy(out, batch.y[: batch.batch_size])
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item()}")

model.eval()
with torch.no_grad():
    right = model(data.x, data.edge_index).argmax(1) == data.y
print(f"test accuracy {right[data.test_mask].double().mean().item()}")
