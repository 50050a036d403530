"""From prompts to samples: rollouts to learn from, and samples to look at."""
