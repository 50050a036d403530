"""The command line."""

from rlfactory.cli.app import main

__all__ = ["main"]
