"""Optimizers that torch does not have as one."""
