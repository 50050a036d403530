"""Accidents on demand: what tests of resuming have happen at a named point of the loop.

RLFACTORY_FAULT=POINT:ACTION[:NTH][@RANK] has it happen when the point is passed for the NTH time
(else the first) in this process, or in that of a rank alone. Nothing else reads the variable, and
without it nothing happens.
"""

import os
import signal

VARIABLE = "RLFACTORY_FAULT"
POINTS = (
    "sampling",
    "scoring",
    "between_updates",
    "saving",
    "renaming",
    "removing",
    "after_iteration",
    "evaluating",
)
_passed: dict[str, int] = {}


class FaultError(RuntimeError):
    """An error that was asked for."""


def fault(point: str) -> None:
    """Kill this process here, ask it to end, hold it, or raise, if the environment says so."""
    if (wish := os.environ.get(VARIABLE)) is not None:
        _happen(wish, point)


def _happen(wish: str, point: str) -> None:
    where, action, number, rank = _understood(wish)
    if where != point or rank not in ("", os.environ.get("RANK", "0")):
        return
    _passed[wish] = _passed.get(wish, 0) + 1
    if _passed[wish] == number:
        ACTIONS[action](point)


def _understood(wish: str) -> tuple[str, str, int, str]:
    told, _, rank = wish.partition("@")
    point, _, rest = told.partition(":")
    action, _, number = rest.partition(":")
    if point not in POINTS or action not in ACTIONS or not f"{number or 1}{rank}".isdigit():
        raise ValueError(
            f"{VARIABLE}={wish} is not POINT:ACTION[:NTH][@RANK]; points are {', '.join(POINTS)},"
            f" actions {', '.join(ACTIONS)}"
        )
    return point, action, int(number or 1), rank


def _kill(point: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _end(point: str) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def _hang(point: str) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _raise(point: str) -> None:
    raise FaultError(f"asked for at {point} by {VARIABLE}")


ACTIONS = {"kill": _kill, "term": _end, "hang": _hang, "raise": _raise}
