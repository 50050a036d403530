"""The first error that rewards have logged: for the message of a run that stops for it."""

import logging


class FirstError(logging.Handler):
    """Keeps the first error that is logged until it is taken, as one line."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._text = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the exception of a record, or its message if it has none."""
        if not self._text:
            kind, error = record.exc_info[:2] if record.exc_info else (None, None)
            text = f"{kind.__name__}: {error}" if kind else record.getMessage()
            self._text = " ".join(text.split())

    def take(self) -> str:
        """The first error since the last call; empty if there was none."""
        text, self._text = self._text, ""
        return text


REWARD_ERRORS = FirstError()
"""The errors of rewards of this process; those of subprocesses go to stderr."""
logging.getLogger("rlfactory.reward").addHandler(REWARD_ERRORS)
