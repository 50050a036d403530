"""Dynamics: how a sample is drawn step by step, and the log-probability of each step."""
