"""The tiny pipelines, for the tests of the matrix."""

from tiny_pipelines import sdxl_folder, small

__all__ = ["sdxl_folder", "small"]
