"""The time of commands that only plan, beside `import hydra`: `check` within 3 of it by CPU time.

python scripts/bench/command.py
"""

import resource
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from time import perf_counter

from sides import finish, machine, parser, turns

COMMANDS = [
    ["--help"],
    ["list"],
    ["check"],
    ["check", "algo=grpo", "algo.clip_rnage=1e-4"],
    ["--cfg", "job"],
]


def clocks_of_children() -> tuple[float, float]:
    """CPU time of the processes that have ended, and wall time."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime, perf_counter()


def called(words: Sequence[str]) -> None:
    """Run a new Python."""
    subprocess.run([sys.executable, *words], capture_output=True, check=False)


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--rounds", type=int, default=7)
    a, began = made.parse_args(), machine()
    works = {"import hydra": partial(called, ["-c", "import hydra"])}
    for words in COMMANDS:
        works[f"rlfactory {' '.join(words)}"] = partial(called, ["-m", "rlfactory.cli", *words])
    finish(a, began, {"start": turns(works, a.rounds, clocks_of_children)})


if __name__ == "__main__":
    main()
