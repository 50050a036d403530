"""Sweeps: the runs that reproduce a published table, started and supervised by one command."""
