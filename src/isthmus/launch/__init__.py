"""Starting workers: on this machine, by torchrun, srun or Kubernetes, on a Ray cluster."""
