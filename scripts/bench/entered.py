"""The source files that an iteration enters, and those that a training process imports.

    python scripts/bench/entered.py                  # of the default run
    python scripts/bench/entered.py algo=ppo model=tiny_gpt2 --names

What a reader has to open to follow a sample from its prompt to the weights that it moves.
"""

import argparse
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import rlfactory
from rlfactory.config.overrides import plan_from_words
from rlfactory.train.build import build, training_budget
from rlfactory.train.components import NoProgress
from rlfactory.train.trainer import Trainer

PACKAGE = Path(rlfactory.__file__).parent
IMPORTED = """
import sys
from importlib import import_module
import rlfactory.train.process.worker
for name in sys.argv[1:]:
    import_module(name)
sys.stdout.write("\\n".join(n for n in sys.modules if n.partition(".")[0] == "rlfactory"))
"""


@contextmanager
def recorded(files: dict[str, int]) -> Iterator[None]:
    """Count the calls of functions by source file, in all threads."""

    def note(frame: FrameType, event: str, argument: Any) -> None:
        del argument
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(f"{PACKAGE}{os.sep}"):
            file = str(Path(name).relative_to(PACKAGE))
            files[file] = files.get(file, 0) + 1

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def entered(words: Sequence[str]) -> dict[str, int]:
    """The calls in each source file during the second iteration of a run."""
    config = plan_from_words(*words, "hardware=cpu").config
    trainer = Trainer(build(config), training_budget(config), NoProgress())
    trainer._iterate(0, None)
    files: dict[str, int] = {}
    with recorded(files):
        trainer._iterate(1, None)
    return files


def imported(words: Sequence[str]) -> list[str]:
    """This package's modules that are loaded where a process trains."""
    targets = _targets(plan_from_words(*words).config)
    names = sorted({target.rpartition(".")[0] for target in targets if "rlfactory" in target})
    command = [sys.executable, "-c", IMPORTED, *names]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return sorted(done.stdout.split())


def _targets(node: Any) -> Iterator[str]:
    """The import paths in a configuration."""
    if isinstance(node, Mapping):
        if "_target_" in node:
            yield node["_target_"]
        for value in node.values():
            yield from _targets(value)


def main() -> None:
    """Print both numbers, and the names if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("words", nargs="*", help="of a run; by default those of NFT on tiny_sd3")
    parser.add_argument("--names", action="store_true", help="also print which they are")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    words = arguments.words or ["algo=nft"]
    files = entered(words)
    print(f"{len(files)} files entered in an iteration")
    modules = imported(words)
    print(f"{len(modules)} modules imported by a training process")
    if arguments.names:
        print(*(f"{count:7} {name}" for name, count in sorted(files.items())), sep="\n")
        print(*modules, sep="\n")


if __name__ == "__main__":
    main()
