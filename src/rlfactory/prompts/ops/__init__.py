"""Functions that several prompt sources share."""
