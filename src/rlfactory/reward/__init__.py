"""What a sample is worth: one file for each reward."""
