"""Start workers: on this machine, by torchrun, srun or Kubernetes, or on a Ray cluster."""
