"""Damaged files, and every command that reads them: none may crash, hang or lose anything.

`python scripts/faults.py --files 1000` asks here; cases differ by seed. What fails is made as small
as it goes, and told with the line of our code at which it failed.
"""

import os
import random
import re
import resource
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median

from faulty.attempt import Attempt, start_attempt, warm_up
from faulty.harm.grammar import Damage, drawn, inflict, shrunk
from faulty.harm.places import OUTSIDE, RUN
from faulty.harm.prepared import prepare
from faulty.harm.reading import Command, commands, kept_lines, lost, snapshot
from faulty.tally import Tally

from rlfactory.run.checkpoint.checksums import DamagedError
from rlfactory.run.checkpoint.find import all_checkpoints, checkpoint_of, verify

HANGS = 10.0
"""Seconds beyond those of the same command on a whole folder."""
TRAINS = 30.0
"""Seconds after which a command that trains is ended: it would go on."""
MEMORY = 8 * 2**30


@dataclass(frozen=True)
class Case:
    """A damaged folder and a command that reads it."""

    command: Command
    damages: tuple[Damage, ...]

    def __str__(self) -> str:
        shown = "; ".join(map(str, self.damages))
        return f"{self.command.name} of {self.command.folder}: {shown}"


@dataclass(frozen=True)
class Answer:
    """What came of a case; `wrong` is empty where all is well."""

    case: Case
    wrong: list[str]
    code: int | None
    seconds: float
    said: str = ""


@dataclass(frozen=True)
class Place:
    """Where cases are tried: the prepared folders, and seconds of each command on a whole one."""

    folder: Path
    prepared: Path
    usual: dict[Command, float]


def run(count: int, seed: int, folder: Path, workers: int = 2) -> Tally:
    """Damage a folder `count` times, each time in a copy, and have a command read it."""
    warm_up()
    prepared = folder / "prepared"
    prepared.mkdir()
    prepare(prepared)
    place = Place(folder, prepared, {})
    known = [c for c in commands(prepared) if _is_possible(place, c)]
    cases = [_case(place, known, random.Random(f"{seed}/{number}")) for number in range(count)]
    with ThreadPoolExecutor(workers) as pool:
        answers = [*_told(pool.map(partial(_tried, place), range(count), cases), count)]
    failures = [a for a in answers if a.wrong]
    return Tally(count, count - len(failures), _listed(place, failures), _figures(answers))


def _is_possible(place: Place, command: Command) -> bool:
    """Whether a command does its work on a whole folder; how long it takes is noted.

    One that needs an extra that is not installed (`inspect`) is left out.
    """
    answer = _tried(place, -1, Case(command, ()))
    if answer.wrong:
        raise RuntimeError(f"{command.name} fails without damage: {answer.wrong}")
    place.usual[command] = answer.seconds
    said = f"{answer.seconds:.1f} s" if answer.code == 0 else f"left out: {answer.said[-300:]}"
    print(f"{command.name} of {command.folder}: {said}", flush=True)
    return answer.code == 0


def _case(place: Place, known: list[Command], chance: random.Random) -> Case:
    command = chance.choices(known, [c.weight for c in known])[0]
    return Case(command, drawn(place.prepared / command.folder, chance))


def _tried(place: Place, number: int, case: Case) -> Answer:
    """A case in a folder of its own, which stays where something is wrong."""
    here = place.folder / f"case_{number:04d}"
    if here.exists():
        shutil.rmtree(here)
    run = _copied_run(place, case, here)
    before, sound = snapshot(run), _sound(run)
    outside = _outside(here)
    lines = 2 * min(sound, 3) - 1 if sound else 0
    kept = kept_lines(run, lines)
    began = time.monotonic()
    words = case.command.typed(run, place.prepared / case.command.folder, here / "out")
    attempt = start_attempt(words, here / "logs", before=partial(_surround, str(here)))
    ended = _waited(attempt, place.usual.get(case.command, 50.0), case.command)
    seconds = time.monotonic() - began
    wrong = [*_wrong(attempt, ended, seconds)]
    wrong += lost(before, snapshot(run), case.command.changes)
    if _outside(here) != outside:
        wrong.append("a file outside was written through a link")
    if kept != kept_lines(run, lines)[: len(kept)]:  # lines that were gone before are not lost
        wrong.append("metrics.jsonl has lost lines that belong to a checkpoint")
    if _sound(run) < sound:
        wrong.append(f"step_{sound:06d} was sound, and no checkpoint is as new now")
    said = attempt.said.read_text("utf-8", "replace")
    if not wrong:
        shutil.rmtree(here)
    return Answer(case, wrong, attempt.code, seconds, said)


def _copied_run(place: Place, case: Case, here: Path) -> Path:
    run = here / RUN
    shutil.copytree(place.prepared / case.command.folder, run, copy_function=_copied)
    for damage in case.damages:
        inflict(run, damage, place.prepared / _other(case))
    return run


def _outside(here: Path) -> bytes:
    """What a link out of the damaged folder leads to, if there is one."""
    path = here / OUTSIDE
    return path.read_bytes() if path.is_file() else b""


def _other(case: Case) -> str:
    """The folder of another run, of the other kind."""
    return {"image/done": "text/done", "text/done": "image/done"}.get(
        case.command.folder.replace("paused", "done"), "image/done"
    )


def _copied(source: str, target: str) -> None:
    """A link where nothing is written in place, for checkpoints are large."""
    if source.endswith(".safetensors"):
        os.link(source, target)
    else:
        shutil.copy2(source, target)


def _sound(run: Path) -> int:
    """The step of the newest sound checkpoint; 0 without one."""
    for step in sorted(all_checkpoints(run / "checkpoints"), reverse=True):
        try:
            verify(checkpoint_of(run / "checkpoints", step))
        except (DamagedError, OSError, ValueError, LookupError, TypeError, AttributeError):
            continue
        return step
    return 0


def _surround(here: str) -> None:
    """In a process of its own: bounded memory, a folder to stand in, and no jobs of a sweep."""
    os.chdir(here)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    from rlfactory.sweep import process

    def begin_nothing(launch: process.JobCommand, *given: object) -> object:
        return process.start_process(["true"], {}, None, [])  # type: ignore[arg-type]

    process.begin = begin_nothing  # type: ignore[assignment]


def _waited(attempt: Attempt, usual: float, command: Command) -> str:
    """How a command ended: by itself, or since it `hangs` or still `trains`."""
    limit = HANGS + 2 * usual
    while not attempt.wait(limit):
        begun = [at for _, at in attempt.came_to()]
        if not begun or not command.trains or time.time() - begun[-1] > limit:
            attempt.kill()
            return "hangs"
        if time.time() - attempt.began > TRAINS:
            attempt.kill()
            return "trains"
        limit = HANGS
    return "ended"


def _wrong(attempt: Attempt, ended: str, seconds: float) -> Iterator[str]:
    said = attempt.said.read_text("utf-8", "replace")
    if ended == "hangs":
        yield f"hangs: ended after {seconds:.0f} s{_tail(said)}"
    elif ended == "ended" and (attempt.code is None or attempt.code < 0):
        yield f"crash: signal {-(attempt.code or 0)}{_tail(said)}"
    elif "Traceback" in said:
        yield f"traceback: {_where(said)}"
    elif ended == "ended" and attempt.code not in (0, 1, 2):
        yield f"exit code {attempt.code}"
    if "\x1b" in said.replace("\x1b[1m", ""):
        yield f"escape: {said[said.index(chr(27)) - 60 :][:120]!r}"


def _where(said: str) -> str:
    """The line of our code at which it failed, and the error."""
    lines = said.strip().splitlines()
    ours = re.findall(r'File "[^"]*src/rlfactory/([^"]+)", line (\d+), in (\w+)', said)
    place = ":".join(ours[-1]) if ours else "?"
    return f"{place}: {lines[-1][:200]}"


def _tail(said: str) -> str:
    return f" ({said.strip().splitlines()[-1][:100]})" if said.strip() else ""


def _listed(place: Place, failures: list[Answer]) -> list[str]:
    """Each failure, made small where it is the first of its kind."""
    listed, kinds = [], Counter(_kind(answer) for answer in failures)
    seen = set()
    for answer in failures:
        kind = _kind(answer)
        if kind in seen:
            listed.append(f"{answer.case}: {'; '.join(answer.wrong)}")
            continue
        seen.add(kind)
        small = _shrunk(place, answer)
        listed.append(f"[{kinds[kind]} alike] {small.case}: {'; '.join(small.wrong)}")
    return listed


def _kind(answer: Answer) -> str:
    return answer.wrong[0].partition(": ")[0] + re.sub(r"[^a-z_/.:]", "", answer.wrong[0])[:60]


def _shrunk(place: Place, answer: Answer) -> Answer:
    found = answer

    def fails(damages: tuple[Damage, ...]) -> bool:
        nonlocal found
        again = _tried(place, 9999, replace(answer.case, damages=damages))
        if again.wrong and _kind(again) == _kind(answer):
            found = again
            return True
        return False

    if len(answer.case.damages) > 1 or answer.case.damages[0].size > 1:
        shrunk(answer.case.damages, fails)
    return found


def _told(answers: Iterator[Answer], count: int) -> Iterator[Answer]:
    """Answers as they come, each failure and every hundredth in a line of the screen."""
    for number, answer in enumerate(answers, start=1):
        if answer.wrong or number % 100 == 0 or number == count:
            verdict = "; ".join(answer.wrong) or f"ended with {answer.code}"
            print(f"{number}/{count} {answer.case}: {verdict}", flush=True)
        yield answer


def _figures(answers: list[Answer]) -> dict[str, str]:
    times = [a.seconds for a in answers]
    of = Counter(a.wrong[0].partition(":")[0] for a in answers if a.wrong)
    kinds = Counter(d.kind.strip() for a in answers for d in a.case.damages)
    codes = Counter(a.code for a in answers)
    names = Counter(a.case.command.name for a in answers)
    return {
        "tracebacks": str(of["traceback"]),
        "hangs": str(of["hangs"]),
        "crashes": str(of["crash"]),
        "lost data and others": str(sum(of.values()) - of["traceback"] - of["hangs"] - of["crash"]),
        "exit codes": ", ".join(f"{code}: {n}" for code, n in codes.most_common()),
        "seconds": f"median {median(times):.1f}, longest {max(times):.1f}" if times else "none",
        "damages": ", ".join(f"{kind}: {n}" for kind, n in kinds.most_common()),
        "commands": ", ".join(f"{name}: {n}" for name, n in names.most_common()),
    }
