"""A run that is killed at one named point after another, until it ends."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from faulty.accidents import unadorned
from faulty.attempt import start_attempt
from faulty.traces import Traces, compared, traces

CHAIN = ("sampling:kill:4", "between_updates:kill", "after_iteration:kill", "saving:kill")
"""In the second batch of the second iteration; then each in that iteration once more."""


def left_by(words: Sequence[str], place: Path) -> Traces:
    """What a run leaves that nothing happens to."""
    ended_with(0, [f"run_dir={place / 'run'}", *words], place)
    return traces(place / "run")


def killed_and_ended(words: Sequence[str], place: Path, faults: Sequence[str]) -> list[str]:
    """What is wrong with a run that each of `faults` has killed, one attempt after another."""
    whole, typed = left_by(words, place / "whole"), [f"run_dir={place / 'run'}", *words]
    for fault in faults:
        ended_with(-9, typed, place, fault)
        typed = ["resume", str(place / "run")]
    ended_with(0, typed, place)
    return compared(whole, traces(place / "run"))


def ended_with(code: int, words: Sequence[str], place: Path, fault: str = "") -> str:
    """Have an attempt, which is to end so; what it said. AssertionError where it ends otherwise."""
    attempt = start_attempt(words, place / "logs", fault, partial(unadorned))
    attempt.wait()
    said = attempt.said.read_text()
    if attempt.code != code:
        raise AssertionError(f"{fault or words[0]} ended with {attempt.code}: {said[-3000:]}")
    return said
