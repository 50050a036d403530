"""Checks for values that are not finite, and what is dumped when one is found."""
