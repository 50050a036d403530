"""Errors whose message tells the user what to change; importing this module imports nothing.

A command prints the message of a `UserError` or an `OSError` without a traceback. Any other
exception is a defect of this package and keeps its traceback on the screen. Errors that a single
package raises and catches stand in that package and derive from `UserError`; those that several
packages raise stand here.
"""


class UserError(Exception):
    """An error that a user can act on; its message says what is wrong and what to type instead."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows: the message, and the line of the cell."""
        from rlfactory.utils.users_code import short_traceback

        return short_traceback(self)


class UserCodeError(UserError, RuntimeError):
    """Code of the user's own that raised an exception, which is this one's cause."""


class ModelError(UserError, ValueError):
    """A model that can't be loaded or can't do what was configured; the message says what to type
    instead.
    """


class PromptError(UserError, ValueError):
    """Prompts that cannot be read; the message names the file, the line and what is wrong."""


class TrainingError(UserError, RuntimeError):
    """A run that must stop; the message says why and what to try."""
