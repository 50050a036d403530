"""Advantage estimators: how much better a sample is than its baseline."""
