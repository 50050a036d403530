"""Rollout engines: what draws the responses that a language model learns from."""
