"""The tiny pipelines, for the tests of the matrix."""

from tiny_pipelines import *  # noqa: F403  (its fixtures)
