"""Regular expressions of users, with a time limit."""

import logging
from typing import Any

import regex

from rlfactory.reward.base import RewardError

log = logging.getLogger(__name__)


def compiled(pattern: str, key: str) -> Any:
    """A pattern of the package `regex`; RewardError, which names the option, where it is none."""
    try:
        return regex.compile(pattern)
    except regex.error as error:
        raise RewardError(f"{key}={pattern} is no regular expression: {error}") from error


def last_match(pattern: Any, text: str, timeout: float) -> str | None:
    """What the last match says: its first group, or all of it where the pattern has no group.

    Returns:
        The text, stripped of nothing; None where nothing matches.

    Raises:
        TimeoutError: the search took longer than `timeout` seconds; there is a line in the log.
    """
    found = None
    try:
        # concurrent releases the GIL, so that sampling continues during a long search
        for match in pattern.finditer(text, timeout=timeout, concurrent=True):
            found = match[1 if pattern.groups else 0] or ""
    except TimeoutError:
        log.error("a search for %.60r took longer than %g s in %.80r", pattern, timeout, text)
        raise
    return found
