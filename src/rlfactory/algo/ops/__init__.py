"""Functions that several algorithms share."""
