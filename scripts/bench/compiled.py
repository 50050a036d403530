"""The speed-up of `memory.compile` on this device, and its compilation time.

    python scripts/bench/compiled.py                          # every setting, minutes on one core
    python scripts/bench/compiled.py model=tiny_sd3 algo=awm  # one of your own
    python scripts/bench/compiled.py --gpu model=sd35         # synchronised

The network calls of an iteration are repeated by a model with compiled blocks and by one without,
in turns. Before that each model runs the iteration itself, whose wall
time includes compilation; afterwards two iterations with other micro-batches show how much is
compiled again for them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter

import torch
from floor import Call, Recorder, clock_of, floor
from sides import Side, finish, machine, parser, turns
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
class Model:
    """A model, and the network calls of its first iteration."""

    config: Config
    parts: Components
    seconds: float
    calls: Sequence[Call]


def model_of(words: Sequence[str], compiled: bool) -> Model:
    """Build a model and run one iteration."""
    config = plan_from_words(*QUIET, *words, f"memory.compile={str(compiled).lower()}").config
    parts = build(config)
    recorder = Recorder(parts.model.device, lambda: parts.model.weights.in_use)
    with recorder.recording():
        begun = perf_counter()
        Trainer(parts, training_budget(config), NoProgress()).run(lambda *_: None)
        return Model(config, parts, perf_counter() - begun, recorder.take())


def graphs() -> int:
    """The number of graphs that the compiler has made in this process."""
    return int(counters["stats"]["unique_graphs"])


def compiled_again(found: Model) -> int:
    """The number of additional graphs for micro-batches of two other sizes."""
    before, size = graphs(), found.config["micro_batch"]
    for other in (size - 1, size // 2 + 1):
        config = {**found.config, "micro_batch": other}
        Trainer(found.parts, training_budget(config), NoProgress()).run(lambda *_: None)
    return graphs() - before


def repeated(model: Model) -> None:
    """Repeat the network calls of a model's first iteration."""
    floor(model.calls, perf_counter, model.parts.model.weights)


def measured(words: Sequence[str], rounds: int) -> tuple[dict[str, Side], dict[str, int]]:
    """The sides, and what compilation costs."""
    plain, before = model_of(words, compiled=False), graphs()
    fast, after = model_of(words, compiled=True), graphs()
    works = {"plain": partial(repeated, plain), "compiled": partial(repeated, fast)}
    sides = turns(works, rounds, clock_of(plain.parts.model.device))
    return sides, {
        "first iteration longer by, s": round(fast.seconds - plain.seconds),
        "graphs": after - before,
        "graphs for two other sizes": compiled_again(fast),
    }


def main() -> None:
    made = parser(__doc__)
    made.add_argument("words", nargs="*", metavar="KEY=VALUE")
    made.add_argument("--rounds", type=int, default=3)
    made.add_argument("--threads", type=int, default=1, help="CPU threads of each side")
    made.add_argument("--gpu", action="store_true", help="on a GPU")
    a, began = made.parse_args(), machine()
    own = [] if a.gpu else ["hardware=cpu", f"hardware.threads={a.threads}"]
    settings = {"yours": " ".join(a.words)} if a.words else SETTINGS
    torch._inductor.config.force_disable_caches = True  # of what earlier commands compiled
    found = {name: measured([*own, *text.split()], a.rounds) for name, text in settings.items()}
    figures = {name: price for name, (_, price) in found.items()}
    print(figures)
    finish(a, began, {name: sides for name, (sides, _) in found.items()}, figures=figures)


if __name__ == "__main__":
    main()
