"""Seconds per iteration and GPU-hours of a run, predicted from its configuration without torch."""
