"""Two iterations of a run on the pretended device; counts waits and copies of the second by unit.

    python tests/device/iteration.py model=tiny_sd3 algo=grpo     # from the top of the checkout

The first iteration fills caches. Units are those in which users think: a sampling step or a token,
a micro-batch of learning, an update, and what remains of an iteration.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import bootstrap  # noqa: E402, F401  (before torch)
import torch  # noqa: E402
from pretended.ledger import LEDGER, Event  # noqa: E402
from pretended.tensor import PretendedDevice  # noqa: E402

from rlfactory.config.overrides import plan_from_words  # noqa: E402
from rlfactory.train.build import build, training_budget  # noqa: E402
from rlfactory.train.components import NoProgress  # noqa: E402
from rlfactory.train.learner import Learner  # noqa: E402
from rlfactory.train.trainer import Trainer  # noqa: E402

SMALL = (
    *("hardware=gpu", "iterations=2", "evaluation.prompts=2"),
    *("prompts_per_iteration=2", "group_size=2"),
)
IMAGES = ("schedule.steps=5", "micro_batch=4", "sample_batch=4", "updates_per_iteration=1")
TEXTS = ("dynamics.length=24", "micro_batch=1", "updates_per_iteration=2")


class Units:
    """How often each unit occurred, and the phase in which the ledger counts it.

    A step (of sampling, or a token) is what happens from one pass of the network to the next while
    a batch of samples is drawn. What comes before the second pass (a language model reads prompts
    in its first) and after the last one is of the rollout.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._pending: Counter[Event] = Counter()
        self._passes = 0

    def network_pass(self) -> None:
        """Called before each pass of the network."""
        if LEDGER.phase == "rollout":
            self._passes += 1
            if self._passes > 2:
                self.counts["step"] += 1
                self._move_to("step")
            self._pending = LEDGER.events.copy()
        elif LEDGER.phase == "old log-probabilities":
            self.counts["old log-probabilities"] += 1

    def begin_rollout(self) -> None:
        self.counts["rollout"] += 1
        self._passes = 0

    def _move_to(self, phase: str) -> None:
        """Events since the pass before belong to the step between the two."""
        for event, count in (LEDGER.events - self._pending).items():
            if event.phase == "rollout":
                LEDGER.events[event] -= count
                moved = Event(phase, event.kind, event.what, event.place)
                LEDGER.events[moved] += count

    def clear(self) -> None:
        self.counts.clear()
        LEDGER.events.clear()


def within(owner: Any, name: str, phase: str, units: Units, unit: str | None = None) -> None:
    """What a function does is counted in `phase`; a call is a `unit` of it."""
    function = getattr(owner, name)

    @wraps(function)
    def counted(*args: Any, **options: Any) -> Any:
        if unit is not None:
            units.counts[unit] += 1
        with LEDGER.during(phase):
            return function(*args, **options)

    setattr(owner, name, counted)


def count(units: Units, components: Any) -> None:
    """Attribute what happens in a Trainer's iterations to units."""
    sample = Trainer.sample

    def sampled(*args: Any, **options: Any) -> Any:
        units.begin_rollout()
        with LEDGER.during("rollout"):
            return sample(*args, **options)

    Trainer.sample = sampled  # type: ignore[method-assign]
    within(Trainer, "score", "score", units, "score")
    within(Learner, "learn", "update", units)
    within(Learner, "_compute_old_log_probs", "old log-probabilities", units)
    within(Learner, "_accumulate_gradient", "micro_batch", units)
    within(components.algo, "loss", "micro_batch", units, "micro_batch")
    within(components.hardware, "step", "update", units, "update")
    evaluations = components.model.evaluations
    before_pass = evaluations.on_pass

    def on_pass() -> None:
        units.network_pass()
        before_pass()

    evaluations.on_pass = on_pass


def words_of(words: Sequence[str]) -> list[str]:
    """A command line of two small iterations."""
    is_text = any("gpt2" in word for word in words)
    return [*SMALL, *(TEXTS if is_text else IMAGES), *words]


def measure(words: Sequence[str]) -> dict[str, Any]:
    """Counts of the second iteration of a run.

    Returns:
        `counts`: waits and pageable copies of each unit; `places`: of each of their lines.
    """
    config = plan_from_words(*words_of(words)).config
    units = Units()

    def after(iteration: int, metrics: Any, rollout: Any) -> None:
        if iteration == 0 and config["iterations"] > 1:
            units.clear()

    torch.set_num_threads(1)
    with PretendedDevice():
        components = build(config)
        if hasattr(components.model, "prepare"):
            components.model.prepare()
        count(units, components)
        LEDGER.phase = "iteration"
        Trainer(components, training_budget(config), NoProgress()).run(after)
    return {"units": dict(units.counts), **tables(LEDGER.events.items(), units.counts)}


def tables(events: Iterable[tuple[Event, int]], units: Counter[str]) -> dict[str, Any]:
    """Waits and pageable copies a unit, and of each line."""
    counts: dict[str, Counter[str]] = {name: Counter(waits=0, pageable=0) for name in units}
    places: Counter[tuple[str, str, str]] = Counter()
    for event, count in events:
        if count and event.is_wait:
            of_phase = counts.setdefault(event.phase, Counter(waits=0, pageable=0))
            of_phase["waits"] += count
            of_phase["pageable"] += count * event.is_pageable
            places[event.phase, event.place, f"{event.kind}: {event.what}"] += count
    each = {
        phase: {kind: round(total / units.get(phase, 1), 3) for kind, total in found.items()}
        for phase, found in counts.items()
    }
    rows = [[*key, count] for key, count in sorted(places.items(), key=lambda item: item[0])]
    return {"counts": each, "places": rows}


if __name__ == "__main__":
    found = measure(sys.argv[1:])
    print(found["units"])
    for phase, kinds in found["counts"].items():
        print(f"{phase:22s} {kinds}")
    for phase, place, what, count in found["places"]:
        print(f"{count:5d}  {phase:22s} {what:34s} {place}")
