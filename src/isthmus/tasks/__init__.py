"""Tasks: the loss that a model is trained for, and the score that decides which weights are best."""
