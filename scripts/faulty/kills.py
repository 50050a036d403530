"""SIGKILL at random moments: whether a run ends as if it had never been killed."""

import json
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from faulty.attempt import Attempt, start_attempt, warm_up
from faulty.runs import KILLED
from faulty.tally import Tally
from faulty.traces import Traces, compared, traces

from rlfactory.run.checkpoint.checksums import MANIFEST_FILE
from rlfactory.run.checkpoint.find import newest

ATTEMPTS = 20


@dataclass(frozen=True)
class Whole:
    """An uninterrupted run: its words, what it left, and for how many seconds it had a folder."""

    words: tuple[str, ...]
    left: Traces
    seconds: float


@dataclass(frozen=True)
class Kill:
    """What one kill did: where it struck, what it cost, and what differs in the end."""

    kind: str
    place: str
    lost: float
    resumed: float
    wrong: list[str]


def run(count: int, seed: int, folder: Path, workers: int = 2) -> Tally:
    """`count` kills, each of a run of its own, at moments drawn from `seed`."""
    warm_up()
    with ThreadPoolExecutor(workers) as pool:
        of_kind = partial(uninterrupted, folder)
        wholes = dict(zip(KILLED, pool.map(of_kind, KILLED.values(), KILLED), strict=True))
        found = pool.map(partial(_trial, wholes, folder, seed), range(count))
        return tallied([*_told(found, count)], wholes)


def uninterrupted(folder: Path, words: tuple[str, ...], name: str) -> Whole:
    """A run that nothing happens to."""
    place = folder / f"whole_{name}"
    attempt = start_attempt([f"run_dir={place / 'run'}", *words], place / "logs")
    attempt.wait_for(place / "run")
    began = time.monotonic()
    attempt.wait()
    seconds = time.monotonic() - began
    if attempt.code != 0:
        raise RuntimeError(f"{name} fails without a fault: {attempt.said.read_text()[-2000:]}")
    return Whole(words, traces(place / "run"), seconds)


def ended(place: Path, words: tuple[str, ...], resumes: bool) -> tuple[Attempt, list[str]]:
    """Have a run that was killed go on to its end; what went wrong on the way."""
    run = place / "run"
    begun = (run / "config.yaml").is_file()
    typed = ["resume", str(run)] if resumes and begun else [f"run_dir={run}", *words]
    attempt = start_attempt(typed, place / "logs")
    attempt.wait()
    said = attempt.said.read_text()[-1000:]
    return attempt, [] if attempt.code == 0 else [f"resuming ended with {attempt.code}: {said}"]


def tallied(kills: list[Kill], wholes: dict[str, Whole]) -> Tally:
    """The figures of all kills."""
    wrong = [f"{k.kind}, killed in {k.place}: {'; '.join(k.wrong)}" for k in kills if k.wrong]
    figures = {
        "runs": _counted(k.kind for k in kills),
        "killed in": _counted(k.place for k in kills),
        "seconds lost": _spread([k.lost for k in kills]),
        "seconds until a resumed run trains": _spread([k.resumed for k in kills]),
        "seconds of a whole run": _counted({n: round(w.seconds, 1) for n, w in wholes.items()}),
    }
    return Tally(len(kills), len(kills) - len(wrong), wrong, figures)


def _trial(wholes: dict[str, Whole], folder: Path, seed: int, number: int) -> Kill:
    chance = random.Random(f"{seed}/{number}")
    kind = [*wholes][number % len(wholes)]
    whole, place = wholes[kind], folder / f"kill_{number:04d}"
    attempt = _killed(whole, place, chance)
    where, lost = _phase(attempt, place / "run"), _lost(place / "run", attempt.began)
    again, wrong = ended(place, whole.words, resumes=chance.random() < 0.5)
    wrong = wrong or compared(whole.left, traces(place / "run"))
    begun = [at for _, at in again.came_to()]
    if not wrong:
        shutil.rmtree(place)
    return Kill(kind, where, lost, begun[0] - again.began if begun else 0.0, wrong)


def _killed(whole: Whole, place: Path, chance: random.Random) -> Attempt:
    """A attempt that was killed at some moment since it made its folder; not one that ended."""
    for _ in range(ATTEMPTS):
        shutil.rmtree(place, ignore_errors=True)
        attempt = start_attempt([f"run_dir={place / 'run'}", *whole.words], place / "logs")
        attempt.wait_for(place / "run")
        if not attempt.wait(chance.uniform(0, whole.seconds)):
            attempt.kill()
        if attempt.code == -9:
            return attempt
        if attempt.code != 0:
            raise RuntimeError(f"fails without a fault: {attempt.said.read_text()[-2000:]}")
    raise RuntimeError(f"a run ended {ATTEMPTS} times before it could be killed")


def _phase(attempt: Attempt, run: Path) -> str:
    """Where a kill struck, by what it left."""
    if not (run / "config.yaml").is_file():
        return "making its folder"
    phases = attempt.came_to()
    if not phases:
        return "building"
    name = "drawing the report" if _has_drawn(run) else phases[-1][0]
    return f"{name}, while saving" if [*run.glob("checkpoints/.step_*")] else name


def _has_drawn(run: Path) -> bool:
    return (run / "curves.png").exists()


def _lost(run: Path, began: float) -> float:
    """Seconds of work that no checkpoint has."""
    found = newest(run / "checkpoints")
    since = began if found is None else (found / MANIFEST_FILE).stat().st_mtime
    return max(time.time() - since, 0.0)


def _told(found: Iterator[Kill], count: int) -> Iterator[Kill]:
    """Kills as they come, each in a line of the screen."""
    for number, kill in enumerate(found, start=1):
        verdict = "identical" if not kill.wrong else "; ".join(kill.wrong)
        print(f"{number}/{count} {kill.kind}, killed in {kill.place}: {verdict}", flush=True)
        yield kill


def _counted(found: object) -> str:
    counts = found if isinstance(found, dict) else Counter(found)  # type: ignore[call-overload]
    return json.dumps(counts)[1:-1].replace('"', "")


def _spread(values: list[float]) -> str:
    if not values:
        return "none"
    return f"median {median(values):.1f}, at most {max(values):.1f}"
