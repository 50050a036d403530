"""A server of rewards: `rlfactory serve`."""
