"""What a run leaves."""
