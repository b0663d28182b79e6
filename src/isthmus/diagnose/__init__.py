"""Doctor: examine this machine, the other workers and the links between them."""
