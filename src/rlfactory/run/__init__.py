"""What a run writes to disk: folder, lock, metrics, checkpoints, loggers, figures and summary."""
