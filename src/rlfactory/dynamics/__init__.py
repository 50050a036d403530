"""How a sample is drawn, and how likely each step of it was."""
