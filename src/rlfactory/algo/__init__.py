"""Algorithms: how rewards become gradients, a file each; `base.py` is their contract."""
