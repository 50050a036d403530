"""Training a reward model on pairs of completions, for PPO."""
