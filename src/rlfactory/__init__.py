"""Reinforcement learning for image generators and language models, one loop for both."""

__version__ = "0.1.0"
