"""The value of a sample: one file for each reward."""
