"""The peaks of runs at published sizes, counted by `rlfactory estimate`: what the plan's line of
memory is held against (tests/config/memory/test_activations.py).

    python scripts/bench/peaks.py               # all anew: minutes each
    python scripts/bench/peaks.py sd35 flux     # those of some models

Offloaded tensors are counted too, and text encoders are not: the runs offload nothing.
"""

import argparse
import json
from pathlib import Path

from rlfactory.config.memory.devices import GIB
from rlfactory.config.overrides import plan_from_words
from rlfactory.tools.estimate import count

FILE = Path(__file__).parents[2] / "tests" / "config" / "memory" / "peaks.json"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", metavar="MODEL")
    models = parser.parse_args().models
    peaks = json.loads(FILE.read_text())
    for words in peaks:
        if not models or words.split()[0].removeprefix("model=") in models:
            peaks[words] = round(count(plan_from_words(*words.split()).config).peak / GIB, 2)
            print(peaks[words], words, flush=True)
            FILE.write_text(json.dumps(peaks, indent=2) + "\n")


if __name__ == "__main__":
    main()
