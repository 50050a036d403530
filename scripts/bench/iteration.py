"""The time of an iteration relative to its floor: its forward and backward passes alone.

    python scripts/bench/iteration.py                          # every setting, minutes on one core
    python scripts/bench/iteration.py --only tokens --rounds 5
    python scripts/bench/iteration.py model=tiny_gpt2 algo=rloo # one of your own
    python scripts/bench/iteration.py --gpu model=sd35          # synchronised

After each iteration of the trainer its network calls are repeated: forward only if there was no
gradient, else forward and backward. Whole iterations and their phases are compared; 1.15 is the
most that an iteration should take of its floor, 1.3 one of tokens, 1.1 sampling.
"""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from floor import Clock, Recorder, clock_of, floor
from sides import Side, finish, machine, parser

from rlfactory.config.overrides import plan_from_words
from rlfactory.rollout import Rollout
from rlfactory.train.build import build, training_budget
from rlfactory.train.components import Components, Metrics, NoProgress
from rlfactory.train.trainer import Trainer

PHASES = ("sample", "score", "learn")
SETTINGS = {
    "nft": "model=tiny_sd3 algo=nft",
    "grpo": "model=tiny_sd3 algo=grpo",
    "awm": "model=tiny_sd3 algo=awm",
    "nft, bf16": "model=tiny_sd3 algo=nft precision=bf16",
    "ddpo": "model=tiny_sd algo=ddpo",
    "flux": "model=tiny_flux algo=grpo",
    "tokens": "model=tiny_gpt2 algo=ppo",
}


class Timed(Trainer):
    """Notes the seconds of the last iteration and of its phases, by several clocks."""

    def __init__(self, parts: Components, budget: Any, progress: NoProgress, clock: Clock) -> None:
        super().__init__(parts, budget, progress)
        self.clock, self.spent = clock, dict[str, Any]()

    def _iterate(self, *inputs: Any) -> Any:
        begun = self.clock()
        made = super()._iterate(*inputs)
        self.spent["iteration"] = self.clock() - begun
        return made

    @contextmanager
    def _measured(self, phase: str) -> Iterator[None]:
        begun = self.clock()
        with super()._measured(phase):
            yield
        self.spent[phase] = self.clock() - begun


def measured(words: Sequence[str], count: int) -> dict[str, dict[str, Side]]:
    """Of `count` iterations after one for warm-up: whole ones beside their floors, and phases."""
    config = plan_from_words("scoring.background=none", f"iterations={count + 1}", *words).config
    parts = build(config)
    model = parts.model
    recorder = Recorder(model.device, lambda: model.weights.in_use)
    clock = clock_of(model.device)
    found = {name: {"itself": Side(), "floor": Side()} for name in ("iteration", *PHASES)}

    class Phases(NoProgress):
        def phase(self, name: str, *, total: int) -> None:
            recorder.phase = name

    def learning() -> None:
        recorder.phase = "learn"

    def note(iteration: int, metrics: Metrics, rollout: Rollout) -> None:
        del metrics, rollout
        bare = floor(recorder.take(), clock, model.weights)
        recorder.take()  # drop the calls of the floor itself
        if iteration:
            for name, spent in {**bare, "iteration": sum(bare.values())}.items():
                found[name]["itself"].add(*trainer.spent[name])
                found[name]["floor"].add(*spent)

    trainer = Timed(parts, training_budget(config), Phases(), clock)
    with recorder.recording():
        trainer.run(note, before_learning=learning)
    return {name: sides for name, sides in found.items() if sides["floor"].cpu}


def arguments() -> argparse.Namespace:
    made = parser(__doc__)
    made.add_argument("words", nargs="*", metavar="KEY=VALUE")
    made.add_argument("--only", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    made.add_argument("--rounds", type=int, default=3, help="measured iterations")
    made.add_argument("--threads", type=int, default=1, help="CPU threads of each side")
    made.add_argument("--gpu", action="store_true", help="on a GPU")
    return made.parse_args()


def main() -> None:
    a, began = arguments(), machine()
    own = [] if a.gpu else ["hardware=cpu", f"hardware.threads={a.threads}"]
    settings = {"yours": " ".join(a.words)} if a.words else {n: SETTINGS[n] for n in a.only}
    comparisons = {}
    for name, text in settings.items():
        found = measured([*own, *text.split()], a.rounds)
        comparisons |= {f"{name}, {what}": sides for what, sides in found.items()}
    finish(a, began, comparisons)


if __name__ == "__main__":
    main()
