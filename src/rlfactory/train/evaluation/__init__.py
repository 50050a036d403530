"""Evaluations during a run: when, how, and what they leave."""
