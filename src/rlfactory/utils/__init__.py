"""Small helpers without knowledge of reinforcement learning."""
