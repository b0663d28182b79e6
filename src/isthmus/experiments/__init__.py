"""Runs of several recipes side by side, and predictions of what a run would cost elsewhere."""
