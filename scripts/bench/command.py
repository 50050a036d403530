"""The wall time of commands that only plan: each should stay well under a second.

python scripts/bench/command.py
"""

import subprocess
import sys
import time

COMMANDS = [
    ["--help"],
    ["list"],
    ["check"],
    ["check", "algo=grpo", "algo.clip_rnage=1e-4"],
    ["--cfg", "job"],
]


def seconds(words: list[str]) -> float:
    """The wall time of one call."""
    begun = time.perf_counter()
    command = [sys.executable, "-m", "rlfactory.cli", *words]
    subprocess.run(command, capture_output=True, check=False)
    return time.perf_counter() - begun


def main() -> None:
    for words in COMMANDS:
        best = min(seconds(words) for _ in range(5))
        print(f"{best:5.2f} s  rlfactory {' '.join(words)}")


if __name__ == "__main__":
    main()
