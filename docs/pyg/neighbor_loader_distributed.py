"""Mini-batch training with PyG, on every process that torchrun starts: parts on disk, and torch's own DDP."""

import torch
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch_geometric import seed_everything
from torch_geometric.datasets import FakeDataset
from torch_geometric.nn import SAGEConv
from torch_geometric.transforms import RandomNodeSplit

import isthmus
from isthmus import NeighborLoader


class Net(torch.nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.first = SAGEConv(features, 32)
        self.last = SAGEConv(32, classes)

    def forward(self, x, edge_index):
        x = self.first(x, edge_index).relu()
        return self.last(x, edge_index)


torch.distributed.init_process_group("gloo")
rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
seed_everything(0)
data = RandomNodeSplit(num_val=0.2, num_test=0.2)(FakeDataset(num_classes=5)[0])
if rank == 0:
    isthmus.partition(isthmus.from_pyg(data), size, out="parts")
torch.distributed.barrier()
mine = data.train_mask.nonzero().flatten()[rank::size]
loader = NeighborLoader("parts", [10, 5], input_nodes=mine, batch_size=64 // size, shuffle=True)
model = DistributedDataParallel(Net(data.num_features, 5))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

for epoch in range(10):
    with model.join():  # a process with one batch less does not keep the others waiting
        for batch in loader:
            optimizer.zero_grad()
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            loss = cross_entropy(out, batch.y[: batch.batch_size])
            loss.backward()
            optimizer.step()
    if rank == 0:
        print(f"epoch {epoch}: loss {loss.item()}")

if rank == 0:
    with torch.no_grad():
        right = model.module(data.x, data.edge_index).argmax(1) == data.y
    print(f"test accuracy {right[data.test_mask].double().mean().item()}")
torch.distributed.barrier()  # nobody leaves while others still work
torch.distributed.destroy_process_group()
