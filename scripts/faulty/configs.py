"""Commands that can't be right, each refused: at once, by name, and before torch is imported.

`python scripts/faults.py --configs 300` asks here; cases differ by seed.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from faulty.bad import commands, crossings, grammar, keys, paths, targets, values
from faulty.bad.case import Case, Maker
from faulty.tally import Tally

SOURCE = Path(__file__).parents[2] / "src"
LIMIT = 1.0
"""Seconds of computing in which a command is refused."""
TRIES = 3
"""The least time of so many counts where the first took longer: other programs slow any command."""
HEAVY = ("torch", "numpy", "transformers", "diffusers", "scipy", "datasets", "wandb", "matplotlib")
WITNESS = f"""import atexit, os, sys
def tell():
    with open(os.environ["RLFACTORY_WITNESS"], "w") as file:
        file.write(" ".join(name for name in {HEAVY} if name in sys.modules))
atexit.register(tell)
"""
MAKERS: dict[Maker, int] = {
    keys.no_such_key: 6,
    keys.below_a_value: 2,
    keys.taken_away: 2,
    keys.taken_away_though_absent: 1,
    keys.added_though_there: 2,
    keys.no_such_option: 3,
    keys.no_such_group: 2,
    keys.a_choice_that_is_none: 3,
    values.of_wrong_type: 8,
    values.out_of_bounds: 8,
    values.no_such_word: 3,
    crossings.crossed: 10,
    targets.forbidden: 4,
    targets.no_text: 2,
    targets.not_there: 3,
    targets.trusted_in_vain: 1,
    grammar.unreadable: 5,
    grammar.without_key: 2,
    grammar.without_equals: 2,
    grammar.misspelt_command: 2,
    grammar.not_utf8: 2,
    grammar.very_long: 2,
    grammar.contradictory: 1,
    grammar.swept: 3,
    paths.misplaced: 6,
    commands.on_no_run: 4,
    commands.wrong_flags: 6,
    commands.unknown_key_explained: 1,
    commands.unknown_group_listed: 1,
}
"""How often each kind of mistake is made, relative to the others."""


@dataclass(frozen=True)
class Answer:
    """What a command said, and what it took: seconds on the clock and of computing."""

    code: int
    out: str
    err: str
    heavy: str
    wrote: list[str]
    wall: float
    computing: float


def make_cases(count: int, seed: int) -> Iterator[Case]:
    """`count` commands, none of which is right."""
    rng = random.Random(seed)
    makers, weights = [*MAKERS], [*MAKERS.values()]
    for _ in range(count):
        yield rng.choices(makers, weights)[0](rng)


def run(count: int, seed: int, workers: int = 1) -> Tally:
    """Type `count` invalid commands and tell which were not refused as they should be.

    One at a time, since their seconds are counted, and two slow each other down.
    """
    cases = [*make_cases(count, seed)]
    with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(workers) as pool:
        (Path(place) / "sitecustomize.py").write_text(WITNESS)
        answers = [*pool.map(lambda case: answered(case, Path(place)), cases)]
    tally = Tally(attempted=count)
    for case, answer in zip(cases, answers, strict=True):
        faults = faults_of(case, answer)
        tally.passed += not faults
        tally.failures += [f"{case}: {'; '.join(faults)}"] if faults else []
    tally.notes = figures(answers)
    return tally


def answered(case: Case, place: Path) -> Answer:
    """What a command says, and the seconds that it takes when nothing disturbs it."""
    first = answer = ask(case, place)
    for _ in range(TRIES - 1):
        if answer.computing <= LIMIT:
            break
        answer = ask(case, place)
    return replace(first, computing=min(first.computing, answer.computing))


def ask(case: Case, place: Path) -> Answer:
    """Type a command in an empty folder below `place`."""
    here = Path(tempfile.mkdtemp(dir=place))
    witness = Path(f"{here}.imported")
    for name, content in case.files.items():
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_bytes(content)
    began, before = time.perf_counter(), _listing(here)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(place), str(SOURCE)]),
        "RLFACTORY_WITNESS": str(witness),
        "NO_COLOR": "1",
    }
    command = [*_console(), *case.words]
    with open(f"{here}.out", "wb") as out, open(f"{here}.err", "wb") as err:
        process = subprocess.Popen(command, cwd=here, env=environment, stdout=out, stderr=err)
        code, computing = _wait(process.pid)
    process.returncode = code
    wall = time.perf_counter() - began
    heavy = witness.read_text() if witness.is_file() else "unknown: it left no word"
    said = [Path(f"{here}.{name}").read_text("utf-8", "replace") for name in ("out", "err")]
    wrote = sorted(_listing(here) - before)
    shutil.rmtree(here)
    return Answer(code, *said, heavy, wrote, wall, computing)


def faults_of(case: Case, answer: Answer) -> list[str]:
    """What is wrong with a refusal."""
    found = []
    if answer.code != 2:
        found.append(f"exit code {answer.code}")
    if "Traceback" in answer.err + answer.out:
        found.append(f"a traceback: {answer.err.strip().splitlines()[-1][:200]}")
    if not any(name in answer.err for name in case.names):
        said = json.dumps(answer.err.strip()[:300])
        found.append(f"names none of {ascii(case.names)[:200]}, but says {said}")
    if answer.heavy:
        found.append(f"imported {answer.heavy}")
    if answer.wrote:
        found.append(f"wrote {', '.join(answer.wrote[:5])}")
    if answer.computing > LIMIT:
        found.append(f"took {answer.computing:.2f} s of computing")
    return found


def figures(answers: Sequence[Answer]) -> dict[str, str]:
    """How long refusals took."""
    told = {}
    for name, times in (
        ("seconds on the clock", sorted(a.wall for a in answers)),
        ("seconds of computing", sorted(a.computing for a in answers)),
    ):
        half, most = times[len(times) // 2], times[min(len(times) * 99 // 100, len(times) - 1)]
        told[name] = f"median {half:.2f}, 99th percentile {most:.2f}, longest {times[-1]:.2f}"
    return told


def _console() -> list[str]:
    """The console script beside this Python; where it isn't installed, what that script does."""
    script = shutil.which("rlfactory", path=str(Path(sys.executable).parent))
    return [sys.executable, *([script] if script else ["-m", "rlfactory.cli"])]


def _wait(pid: int) -> tuple[int, float]:
    """The exit code of a process and its seconds of computing; it is killed after a minute."""
    timer = time.monotonic() + 60
    while True:
        done, status, usage = os.wait4(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime
        if time.monotonic() > timer:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)


def _listing(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}
