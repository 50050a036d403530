"""What a run writes to disk: folder, lock, metrics, scores, samples, checkpoints and loggers."""
