"""From prompts to samples: rollouts to learn from, and samples to evaluate and show."""
