"""Write the training loop yourself: the script of one process, run by each of several.

python own_loop.py                                             (one worker)
torchrun --standalone --nproc-per-node 2 own_loop.py           (two: the same losses)
"""

import torch
from torch.nn.functional import cross_entropy

import isthmus
from isthmus.nn import ModelConfig

with isthmus.Worker("synthetic:flickr@0.02", dtype="float64") as worker:
    model = ModelConfig("sage", hidden=16, dropout=0.2).build(
        worker.num_features, worker.num_classes, seed=0, dtype=torch.float64
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=30)
    worker.prepare(model, optimizer)
    for step in range(30):
        optimizer.zero_grad()
        out = model(worker.graph, worker.x)
        loss = worker.backward(cross_entropy(out[worker.train_mask], worker.y[worker.train_mask]))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # of gradients that are summed over all workers
        optimizer.step()
        scheduler.step()
        if step % 10 == 9:
            worker.print(f"step {step + 1}: loss {loss:.10f}")
    worker.print({name: round(score, 4) for name, score in worker.evaluate(model).items()})
