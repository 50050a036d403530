"""A run on disk: folder, lock, metrics, scores, samples, checkpoints and loggers."""
