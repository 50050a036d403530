"""Checkpoints during a run: when they are due, writing, resuming, and rolling back."""
