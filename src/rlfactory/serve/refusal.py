"""Why a request gets no scores."""


class Refusal(Exception):
    """An HTTP status, a message for whoever asked, and the seconds after which to ask again."""

    def __init__(self, status: int, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after = retry_after
