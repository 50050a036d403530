"""What a run will take of a device: arithmetic on a configuration, without torch."""
