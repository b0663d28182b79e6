"""Train on a graph of your own: arrays in, a class for every node out.

python own_data.py
"""

from pathlib import Path

import numpy as np

import isthmus

# A ring of 600 nodes in three stretches, which are their classes; features are noisy hints.
draw = np.random.default_rng(0)
nodes = np.arange(600)
label = nodes // 200
edges = np.stack([nodes, (nodes + 1) % 600])
far = np.stack([nodes, label * 200 + draw.integers(200, size=600)])
split = draw.permutation(600)

np.savez(
    "mine.npz",
    edge_index=np.concatenate([edges, far], axis=1),
    x=np.eye(3)[label] + draw.normal(0, 1.5, (600, 3)),
    y=label,
    train_mask=split < 120,
    val_mask=(split >= 120) & (split < 240),
    test_mask=split >= 240,
)

result = isthmus.train("mine.npz", undirected=True, workers=2, steps=60)  # cut into two parts, one for each worker
print(result)
result.predict("nodes.csv")  # node, class, score
print(Path("nodes.csv").read_text()[:60])
