"""Fault injection: tests of resuming let a process die at a named point of the training loop.

RLFACTORY_FAULT=POINT:ACTION[:NTH][@RANK] triggers the action when this process passes the point for
the NTH time (default: the first), on one rank only where one is given. Nothing else reads the
variable, and without it nothing happens.
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
ACTIONS = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "hang": signal.SIGSTOP, "raise": 0}
"""What is sent to this process; `raise` raises an error in its place."""
_passed: dict[str, int] = {}


class FaultError(RuntimeError):
    """The error that the action `raise` raises."""


def fault_point(point: str) -> None:
    """Trigger the fault that the environment variable requests at this point, if any."""
    if (wish := os.environ.get(VARIABLE)) is not None:
        _trigger(wish, point)


def _trigger(wish: str, point: str) -> None:
    where, action, number, rank = _parse(wish)
    if where != point or rank not in ("", os.environ.get("RANK", "0")):
        return
    _passed[wish] = _passed.get(wish, 0) + 1
    if _passed[wish] == number:
        if action == "raise":
            raise FaultError(f"requested at {point} by {VARIABLE}")
        os.kill(os.getpid(), ACTIONS[action])


def _parse(wish: str) -> tuple[str, str, int, str]:
    fault, _, rank = wish.partition("@")
    point, _, rest = fault.partition(":")
    action, _, number = rest.partition(":")
    if point not in POINTS or action not in ACTIONS or not f"{number or 1}{rank}".isdigit():
        raise ValueError(
            f"{VARIABLE}={wish} is not POINT:ACTION[:NTH][@RANK]; points are {', '.join(POINTS)},"
            f" actions {', '.join(ACTIONS)}"
        )
    return point, action, int(number or 1), rank
