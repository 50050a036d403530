"""How far a job is, by its folder alone."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

State = Literal["done", "resume", "retry", "new"]
TAIL = 65536


@dataclass(frozen=True)
class Standing:
    """What a run's folder says: what is to be done, iterations and seconds so far, the score."""

    state: State
    iteration: int = 0
    seconds: float = 0.0
    score: float = math.nan


def state_of(run: Path) -> State:
    """What the same command would do in a run's folder."""
    try:
        word = (run / "STATUS").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return "new"
    if word in ("done", "failed"):
        return "done" if word == "done" else "retry"
    return "resume"


def standing(run: Path, score: str = "") -> Standing:
    """A run's state with its last line of metrics; `score` is the one to look for first."""
    state, last = state_of(run), last_line(run / "metrics.jsonl")
    if last is None:
        return Standing(state)
    return Standing(
        state, int(last.get("iteration") or 0), last.get("time") or 0.0, _score(last, score)
    )


def _score(line: Mapping[str, float | None], name: str) -> float:
    """The mean reward of that name, else of the first there is."""
    names = [f"reward/{name}/mean", *(k for k in line if k.startswith("reward/"))]
    names = [key for key in names if key.endswith("/mean")]
    values = (line.get(key) for key in names)
    return next((value for value in values if value is not None), math.nan)


def last_line(path: Path) -> dict[str, float | None] | None:
    """The last whole line of a file of metrics that is about training, if there is one."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL))
            lines = file.read().split(b"\n")[:-1]
    except OSError:
        return None
    for line in reversed(lines):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict) and any(str(key).startswith("reward/") for key in found):
            return found
    return None


def failure(run: Path, output: Path) -> list[str]:
    """Why a job failed: its own message, then the last lines of the traceback."""
    said = [line for line in _lines(output) if line.startswith("error:")]
    traced = _lines(run / "log.txt")
    if "Traceback (most recent call last):" not in traced:
        traced = _lines(output)
    begin = [i for i, x in enumerate(traced) if x.startswith("Traceback (most recent call last)")]
    tail = traced[begin[-1] :][-6:] if begin else []
    return [*said[-1:], *tail] or _lines(output)[-6:]


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [line for line in text[-TAIL:].splitlines() if line.strip()]
