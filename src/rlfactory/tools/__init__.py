"""Commands on a finished run: evaluate, sample, inspect, export, sync; and the reward server."""
