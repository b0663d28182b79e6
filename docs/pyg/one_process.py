"""Full-graph training with PyG, in one process."""

import torch
from torch.nn.functional import cross_entropy
from torch_geometric import seed_everything
from torch_geometric.datasets import FakeDataset
from torch_geometric.nn import SAGEConv
from torch_geometric.transforms import RandomNodeSplit


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
model = Net(data.num_features, 5)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

for epoch in range(30):
    model.train()
    optimizer.zero_grad()
    out = model(data.x, data.edge_index)
    loss = cross_entropy(out[data.train_mask], data.y[data.train_mask])
    loss.backward()
    optimizer.step()
    print(f"epoch {epoch}: loss {loss.item()}")

model.eval()
with torch.no_grad():
    right = model(data.x, data.edge_index).argmax(1) == data.y
print(f"test accuracy {right[data.test_mask].double().mean().item()}")
