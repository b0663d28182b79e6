"""Starting workers: on this machine, by torchrun, by srun."""
