"""Stores the sums of the runs that the README reports, with which `verify --published` compares.

python scripts/docs/published.py seed0 seed1   # run folders; words are those of their command.txt

Runs are made by `rlfactory run_dir=seed0 hardware=cpu hardware.portable=true seed=0`. A run that
has not ended is stored as far as it has come.
"""

import json
import shlex
import sys
from pathlib import Path

from rlfactory.config.problems import override_key
from rlfactory.run.atomic_write import write_text
from rlfactory.tools.published import FILE, recorded


def row(path: Path) -> str:
    """A line of the file: what is stored of the run in a folder."""
    typed = shlex.split((path / "command.txt").read_text(encoding="utf-8"))[1:]
    words = [word for word in typed if override_key(word) not in ("run_dir", "checkpoint.minutes")]
    return json.dumps(recorded(path, words))


if __name__ == "__main__":
    rows = ",\n".join(row(Path(path)) for path in sys.argv[1:])
    write_text(FILE, f"[\n{rows}\n]\n")
