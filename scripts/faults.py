"""Accidents that a run must survive, many of them: what came of each, and a tally.

python scripts/faults.py --kills 200 --corruptions 500 --configs 300 --files 1000
python scripts/faults.py --kills 15 --seed 7 --folder /dev/shm

The exit code is 1 unless all of them passed. Runs that did not are kept in the folder.
"""

import argparse
import importlib
import logging
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from faulty.tally import Tally

KINDS = ("kills", "corruptions", "configs", "files")


def main(words: Sequence[str] | None = None) -> int:
    """Try what was asked for; whether all passed."""
    asked = _arguments(words)
    logging.disable()  # damage is told by the tally
    tallies = [_tally(kind, asked) for kind in KINDS if getattr(asked, kind)]
    return 0 if all(tally.passed == tally.attempted for tally in tallies) else 1


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What a run must survive, tried many times.")
    parser.add_argument("--kills", type=int, default=0, help="SIGKILL at random moments")
    parser.add_argument("--corruptions", type=int, default=0, help="damage to checkpoints")
    parser.add_argument("--configs", type=int, default=0, help="commands that must be refused")
    parser.add_argument("--files", type=int, default=0, help="damaged files that commands read")
    parser.add_argument("--seed", type=int, default=0, help="other cases for another seed")
    parser.add_argument("--workers", type=int, default=2, help="runs at a time")
    parser.add_argument("--folder", type=Path, help="where runs are made; by default a new one")
    asked = parser.parse_args(words)
    if not any(getattr(asked, kind) for kind in KINDS):
        parser.error("say how many: --kills 200, --corruptions 500, --configs 300, --files 1000")
    return asked


def _tally(kind: str, asked: argparse.Namespace) -> Tally:
    count, began = getattr(asked, kind), time.monotonic()
    run = importlib.import_module(f"faulty.{kind}").run
    if kind == "configs":
        tally: Tally = run(count, asked.seed)
    else:
        folder = Path(tempfile.mkdtemp(prefix=f"{kind}_", dir=asked.folder))
        print(f"{kind}: in {folder}", flush=True)
        tally = run(count, asked.seed, folder, asked.workers)
    minutes = (time.monotonic() - began) / 60
    print(f"\n{kind} (seed {asked.seed}, {minutes:.1f} minutes): {tally.show()}\n", flush=True)
    return tally


if __name__ == "__main__":
    sys.exit(main())
