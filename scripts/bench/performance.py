"""The commands behind docs/performance.md, whose figures docs/results/performance.json stores.

    python scripts/bench/performance.py             # the rows that are missing: an hour on one core
    python scripts/bench/performance.py ppo grpo    # these rows anew

Each command is a process, repeated as often as its row says, and stored when it has ended. TRL's
environments are made in the folder of `--environments`. performance_page.py writes the tables.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"
STORED = DOCS / "results" / "performance.json"

Stored = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Row:
    """A command of this folder, and how often it is run."""

    command: str
    runs: int = 1


ROWS: Mapping[str, Row] = {
    "command": Row("command.py", 2),
    "ppo": Row("trl_ppo.py --rounds 1 --environment trl-1.12", 2),
    "grpo": Row("trl_ppo.py --environment trl-1.16 --algorithm grpo"),
    "ddpo": Row("trl_ddpo.py --rounds 1 --environment trl-0.23", 2),
    "rollout": Row("rollout.py", 2),
    "rollout, ends": Row("rollout.py --end 0.04", 2),
    "256": Row("shared_prompts.py --rounds 3", 2),
    "40": Row("shared_prompts.py --rounds 3 --prompt 40 --new 16", 2),
    "iteration": Row("iteration.py"),
    "64": Row("shared_prompts.py --rounds 1 --prompts 8 --rollouts"),
    "256, bf16": Row("shared_prompts.py --rounds 3 --dtype bfloat16"),
    "64, bf16": Row("shared_prompts.py --rounds 1 --prompts 8 --rollouts --dtype bfloat16"),
    "memory": Row("memory_growth.py"),
    "compiled": Row("compiled.py model=tiny_sd3 algo=nft"),
}


def read() -> Stored:
    """The stored rows by name, each with its command and its runs.

    A row that has a source instead was measured by hand. `noted` has the page's texts with numbers
    that no command makes, each with its source.
    """
    found: Stored = json.loads(STORED.read_text(encoding="utf-8"))
    return found


def write(stored: Stored) -> None:
    """A row a line."""
    lines = (f"{json.dumps(name)}: {json.dumps(row)}" for name, row in stored.items())
    STORED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def run(command: str, environments: Path) -> dict[str, Any]:
    """What a command writes, without its arguments."""
    script, *words = command.split()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        typed = [sys.executable, str(HERE / script), *words, "--json", str(file)]
        subprocess.run(typed, cwd=environments, check=True)
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    del found["asked"]
    return found


def is_missing(name: str, stored: Stored) -> bool:
    """Whether a row was run by another command, or less often than it is to be."""
    known, row = stored.get(name, {}), ROWS[name]
    return known.get("command") != row.command or len(known["runs"]) < row.runs


def measure(name: str, environments: Path) -> None:
    """Run a row's command, and store each of its runs."""
    row, runs = ROWS[name], []
    for _ in range(row.runs):
        print(f"{name}: {row.command}", flush=True)
        runs.append(run(row.command, environments))
        write(read() | {name: {"command": row.command, "runs": runs}})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--environments", type=Path, default=Path.home() / ".cache" / "rlfactory")
    a = parser.parse_args()
    if unknown := [name for name in a.rows if name not in ROWS]:
        parser.error(f"no row is called {unknown[0]!r}; rows: {', '.join(ROWS)}")
    for name in a.rows or [name for name in ROWS if is_missing(name, read())]:
        measure(name, a.environments)


if __name__ == "__main__":
    main()
