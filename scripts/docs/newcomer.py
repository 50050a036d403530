"""Follows the ten-minutes page as a newcomer: a fresh clone, the page's commands as they are typed.

    python scripts/docs/newcomer.py --to FOLDER    # prints the minutes of each step

The first block makes the virtual environment and installs. Then the notebook on algorithms runs in
it, without Jupyter. The minutes need a machine that is idle otherwise. What is cloned is the last
commit, without later changes.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = "docs/get_started/ten_minutes.md"
NOTEBOOK = "docs/notebooks/write_an_algorithm.py"
NOT_THERE = "/data/"
"""Files that only a reader has: blocks that name them are left out."""
_PARTS = re.compile(
    r"^## (?P<title>[^\n]+)$|^```(?P<kind>bash|python)\n(?P<text>.*?)^```$", re.M | re.S
)
_NAMED = re.compile(r"# (\S+\.py)\n")


@dataclass(frozen=True)
class Step:
    """A block of the page: its section, its language and its text."""

    section: str
    kind: str  # bash, python
    text: str

    def command(self) -> list[str]:
        """A shell's command that runs it; a block that begins with a file name is saved there."""
        named = _NAMED.match(self.text)
        if self.kind == "python" and named:
            return ["bash", "-c", 'printf %s "$1" > "$2"', "bash", self.text, named[1]]
        if self.kind == "python":
            return [*_SHELL, f"{_ACTIVATE}python - <<'END'\n{self.text}END"]
        return [*_SHELL, _ACTIVATE + self.text]


_SHELL = ["bash", "-eo", "pipefail", "-c"]
_ACTIVATE = "[ ! -d .venv ] || . .venv/bin/activate\n"


def steps(page: str) -> list[Step]:
    """The blocks that a newcomer types, in the order of the page."""
    section, found = "", []
    for part in _PARTS.finditer(page):
        section = part["title"] or section
        if part["kind"] and NOT_THERE not in part["text"]:
            found.append(Step(section, part["kind"], part["text"]))
    return found


def code_lines(script: str) -> int:
    """Lines of code of a notebook's script: no blank ones, no comments."""
    lines = (line.strip() for line in script.splitlines())
    return sum(bool(line) and not line.startswith("#") for line in lines)


def environment() -> dict[str, str]:
    """This process's, without what leads to another installation of rlfactory."""
    hidden = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    own = str(Path(sys.executable).parent) if sys.prefix != sys.base_prefix else ""
    kept["PATH"] = os.pathsep.join(p for p in kept["PATH"].split(os.pathsep) if p != own)
    return kept


def main() -> int:
    """Run all steps; 1 where one fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, required=True, help="a folder that does not exist yet")
    folder = parser.parse_args().to.resolve()
    subprocess.run(["git", "clone", "--quiet", ROOT, folder], check=True)
    notebook = (folder / NOTEBOOK).read_text(encoding="utf-8")
    algorithm = Step(f"notebook, {code_lines(notebook)} lines", "python", notebook)
    begin = time.monotonic()
    for step in [*steps((folder / PAGE).read_text(encoding="utf-8")), algorithm]:
        if step is algorithm:
            print(f"the page: {(time.monotonic() - begin) / 60:.1f} min", flush=True)
        started = time.monotonic()
        done = subprocess.run(step.command(), cwd=folder, env=environment(), check=False)
        minutes = (time.monotonic() - started) / 60
        print(f"{minutes:5.1f} min  {step.section} ({step.kind})", flush=True)
        if done.returncode:
            print(f"error: exit status {done.returncode}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
