"""Lines for whoever typed the command, beside what a command prints."""

from rich.console import Console


def say(message: str) -> None:
    """A line on standard error."""
    Console(stderr=True).print(message, markup=False, highlight=False, soft_wrap=True)


def say_error(message: str) -> None:
    """One that says what was wrong."""
    say(f"error: {message}")
