"""The first error that rewards have logged: for the message of a run that stops for it."""

import logging


class FirstError(logging.Handler):
    """Keeps the first error that is logged until it is taken."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._first: tuple[str, BaseException | None] | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the exception of a record, or its message if it has none."""
        if self._first is None:
            error = record.exc_info[1] if record.exc_info else None
            text = f"{type(error).__name__}: {error}" if error else record.getMessage()
            self._first = " ".join(text.split()), error

    def take(self) -> tuple[str, BaseException | None]:
        """The first error since the last call, as one line, and the exception if there was one;
        empty if there was none.
        """
        first, self._first = self._first, None
        return first or ("", None)


REWARD_ERRORS = FirstError()
"""The errors of rewards of this process, and of those that their subprocesses tell it."""
for _package in ("rlfactory.reward", "rlfactory.train.scoring"):
    logging.getLogger(_package).addHandler(REWARD_ERRORS)
