"""Train on several machines: the same command on each, started by torchrun, srun or Kubernetes.

isthmus partition synthetic:flickr@0.02 --parts 2 --out parts          (once; then on a disk that all machines share)
export ISTHMUS_SECRET_FILE=$HOME/.isthmus-secret                       (the same file on all)
torchrun --nnodes 2 --node-rank 0 --nproc-per-node 1 --master-addr A --master-port 29500 several_hosts.py parts run
torchrun --nnodes 2 --node-rank 1 --nproc-per-node 1 --master-addr A --master-port 29500 several_hosts.py parts run
"""

import os
import sys

import isthmus

parts, run = sys.argv[1:]
result = isthmus.train(parts, out=run, model="sage", hidden=16, steps=20, recipe="pipegcn")
if os.environ.get("RANK", "0") == "0":
    print(result)
