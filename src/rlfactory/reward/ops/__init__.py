"""Functions of several rewards that run no network."""
