"""The process a run trains in: launch, worker, signals."""
