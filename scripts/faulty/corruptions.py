"""Damage to checkpoints: whether each is found before training, and the one before is used."""

import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from faulty.attempt import start_attempt, warm_up
from faulty.damage import damaged
from faulty.runs import KILLED
from faulty.tally import Tally
from faulty.traces import Traces, compared, traces

from rlfactory.run.checkpoint.find import checkpoint_of, newest

EVERY = 25
"""One in so many goes through a whole resumed run; the others through the search for a checkpoint
that it begins with.
"""
KIND, BEFORE, LAST = "grpo", 2, 3
AT = "evaluating:kill:3"
"""Before its last evaluation, when a run has all of its checkpoints and is not done."""


def run(count: int, seed: int, folder: Path, workers: int = 2) -> Tally:
    """Damage the newest checkpoint of a run `count` times, each time in a copy."""
    warm_up()
    run, expected = _paused(folder)
    trial = partial(_trial, run, expected, folder, seed)
    with ThreadPoolExecutor(workers) as pool:
        found = [*_told(pool.map(trial, range(count)), count)]
    wrong = [f"{said}: {'; '.join(errors)}" for _, said, errors in found if errors]
    kinds = Counter(kind for kind, _, _ in found)
    notes = {
        "kinds": ", ".join(f"{kind}: {n}" for kind, n in sorted(kinds.items())),
        "through a resumed run": str(len(range(0, count, EVERY))),
    }
    return Tally(count, count - len(wrong), wrong, notes)


def _paused(folder: Path) -> tuple[Path, Traces]:
    """A run that was killed before its end, and what it would have left."""
    words, whole, run = KILLED[KIND], folder / "whole", folder / "paused"
    if (code := _sat([f"run_dir={whole}", *words], folder / "logs")[0]) != 0:
        raise RuntimeError(f"the run ended with {code}; see {folder / 'logs'}")
    if (code := _sat([f"run_dir={run}", *words], folder / "logs", AT)[0]) != -9:
        raise RuntimeError(f"the run to be damaged ended with {code} before it was killed")
    return run, traces(whole)


def _sat(words: list[str], logs: Path, fault: str = "") -> tuple[int | None, str]:
    attempt = start_attempt(words, logs, fault)
    attempt.wait()
    return attempt.code, attempt.said.read_text()


def _trial(
    run: Path, expected: Traces, folder: Path, seed: int, number: int
) -> tuple[str, str, list[str]]:
    chance = random.Random(f"{seed}/{number}")
    place = folder / f"damage_{number:04d}"
    shutil.copytree(run, place / "run", copy_function=_copied)
    kind, said = damaged(checkpoint_of(place / "run" / "checkpoints", LAST), chance)
    wrong = _resumed(place, expected) if number % EVERY == 0 else _sought(place / "run")
    if not wrong:
        shutil.rmtree(place)
    return kind, said, wrong


def _sought(run: Path) -> list[str]:
    """What is wrong with how a run finds the checkpoint that it goes on from."""
    said: list[str] = []
    found = newest(run / "checkpoints", said.append)
    return [*_errors(run, "".join(said), None if found is None else found.name)]


def _resumed(place: Path, expected: Traces) -> list[str]:
    """What is wrong with a run that was resumed, on its way and at its end."""
    run = place / "run"
    code, said = _sat(["resume", str(run)], place / "logs")
    began = f"step_{BEFORE:06d}" if f"resuming after iteration {BEFORE} " in said else None
    ended = [] if code == 0 else [f"resuming ended with {code}: {said[-1000:]}"]
    return [*ended, *_errors(run, said, began), *compared(expected, traces(run))]


def _errors(run: Path, said: str, used: str | None) -> Iterator[str]:
    if f"step_{LAST:06d} is damaged: " not in said:
        yield "it was not found"
    if used != f"step_{BEFORE:06d}":
        yield f"{used} was used, and not the one before"
    if not (run / "checkpoints" / f"damaged_step_{LAST:06d}").is_dir():
        yield "it was not kept aside"


def _copied(source: str, target: str) -> None:
    """A link where nothing is written in place, for checkpoints are large."""
    if source.endswith(".safetensors"):
        os.link(source, target)
    else:
        shutil.copy2(source, target)


def _told(
    found: Iterator[tuple[str, str, list[str]]], count: int
) -> Iterator[tuple[str, str, list[str]]]:
    """Trials as they come, each failure and every hundredth in a line of the screen."""
    for number, (kind, said, errors) in enumerate(found, start=1):
        if errors or number % 100 == 0 or number == count:
            print(f"{number}/{count} {said}: {'; '.join(errors) or 'found'}", flush=True)
        yield kind, said, errors
