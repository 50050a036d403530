"""Memory estimate of a run: arithmetic on its configuration, without torch."""
