"""The schema of a configuration, read from the annotations of source files without imports."""
