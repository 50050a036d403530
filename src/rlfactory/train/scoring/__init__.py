"""Rewards during a run: in the background, in a subprocess, on another device."""
