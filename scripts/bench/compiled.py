"""The speed-up of `memory.compile` on this device, and its compilation time.

    python scripts/bench/compiled.py                          # every setting, minutes on one core
    python scripts/bench/compiled.py model=tiny_sd3 algo=awm  # one of your own
    python scripts/bench/compiled.py --wall model=sd35        # on a GPU, synchronised

The network calls of an iteration are repeated, alternately by a model with compiled blocks and by
one without; the table has the medians. Before that each model runs the iteration itself, whose wall
time includes compilation; afterwards two iterations with other micro-batches show how much is
compiled again for them.
"""

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import torch
from floor import Call, Recorder, floor
from iteration import clock_of, line
from torch._dynamo.utils import counters

from rlfactory.config.overrides import plan_from_words
from rlfactory.train.build import Config, build, training_budget
from rlfactory.train.components import Components, NoProgress
from rlfactory.train.trainer import Trainer

SETTINGS = {
    "tiny_sd3": "model=tiny_sd3 algo=nft",
    "tiny_flux": "model=tiny_flux algo=nft",
    "tiny_sd": "model=tiny_sd algo=ddpo",
}
QUIET = ["scoring.background=none", "iterations=1"]


@dataclass
class Side:
    """A model, and the network calls of its first iteration."""

    config: Config
    parts: Components
    seconds: float
    calls: Sequence[Call]


def side(words: Sequence[str], compiled: bool) -> Side:
    """Build a model and run one iteration."""
    config = plan_from_words(*QUIET, *words, f"memory.compile={str(compiled).lower()}").config
    parts = build(config)
    recorder = Recorder(parts.model.device, lambda: parts.model.weights.in_use)
    with recorder.recording():
        begun = perf_counter()
        Trainer(parts, training_budget(config), NoProgress()).run(lambda *_: None)
        return Side(config, parts, perf_counter() - begun, recorder.take())


def graphs() -> int:
    """The number of graphs that the compiler has made in this process."""
    return int(counters["stats"]["unique_graphs"])


def compiled_again(found: Side) -> int:
    """The number of additional graphs for micro-batches of two other sizes."""
    before, size = graphs(), found.config["micro_batch"]
    for other in (size - 1, size // 2 + 1):
        config = {**found.config, "micro_batch": other}
        Trainer(found.parts, training_budget(config), NoProgress()).run(lambda *_: None)
    return graphs() - before


def measured(words: Sequence[str], rounds: int, wall: bool, threads: int) -> list[str]:
    """A row: seconds without and with compilation, their ratio, and the cost of compilation."""
    own = [] if wall else ["hardware=cpu", f"hardware.threads={threads}"]
    plain = side([*own, *words], compiled=False)
    before = graphs()
    fast = side([*own, *words], compiled=True)
    made = graphs() - before
    clock = clock_of(wall, plain.parts.model.device)
    taken: list[tuple[float, float]] = []
    for _ in range(rounds):
        times = (sum(floor(s.calls, clock, s.parts.model.weights).values()) for s in (plain, fast))
        taken.append((next(times), next(times)))
    slow, quick = (median(times) for times in zip(*taken, strict=True))
    gain = median(a / b for a, b in taken)
    price = [f"{fast.seconds - plain.seconds:.0f}", str(made), str(compiled_again(fast))]
    return [f"{slow:.2f}", f"{quick:.2f}", f"{gain:.2f} ×", *price]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    parser.add_argument("--wall", action="store_true", help="measure wall time, on any device")
    a = parser.parse_args()
    settings = {"yours": " ".join(a.words)} if a.words else SETTINGS
    print(f"torch {torch.__version__}; load before: {os.getloadavg()[0]:.1f}")
    price = ["first iteration longer by, s", "graphs", "and for two other sizes"]
    print(line(["", "plain, s", "compiled, s", "", *price]))
    print(line(["---", *["---:"] * 6]), flush=True)
    torch._inductor.config.force_disable_caches = True  # of what earlier commands compiled
    for name, text in settings.items():
        print(line([name, *measured(text.split(), a.rounds, a.wall, a.threads)]), flush=True)


if __name__ == "__main__":
    main()
