"""What moves while a run goes on, besides tensors: to save, and to take up again."""

from collections.abc import Mapping
from typing import Any

from rlfactory.parts import Parts
from rlfactory.trainer import Trainer


def state_of(trainer: Trainer) -> dict[str, Any]:
    """The counts of a loop and what its parts remember, as plain values.

    The averages' clocks are these counts; all that is random is keyed by them.
    """
    return {
        "updates": trainer.learner.updates,
        "skipped": trainer.guard.row,
        "evaluations": trainer.evaluations,
        "seconds": trainer.elapsed,
        "ended": trainer.ended,
        **_of_parts(trainer.parts),
    }


def take_up(trainer: Trainer, state: Mapping[str, Any]) -> None:
    """Have a loop go on from a `state_of` it; a part that is new since then begins its own."""
    trainer.learner.updates = state["updates"]
    trainer.guard.row = state.get("skipped", 0)
    trainer.evaluations, trainer.seconds = state["evaluations"], state["seconds"]
    trainer.ended = state["ended"]
    parts = trainer.parts
    for name, coefficient in parts.regularizer.coefficients.items():
        if name in state["coefficients"]:
            coefficient.load_state_dict(state["coefficients"][name])
    if parts.algo.advantage is not None and state["advantage"] is not None:
        parts.algo.advantage.load_state_dict(state["advantage"])
    parts.reward.load_state_dict(state["reward"])
    parts.stop.load_state_dict(state["stop"])
    parts.hardware.load_state_dict(state["hardware"])


def _of_parts(parts: Parts) -> dict[str, Any]:
    coefficients, advantage = parts.regularizer.coefficients, parts.algo.advantage
    return {
        "coefficients": {name: c.state_dict() for name, c in coefficients.items()},
        "advantage": None if advantage is None else advantage.state_dict(),
        "reward": parts.reward.state_dict(),
        "stop": parts.stop.state_dict(),
        "hardware": parts.hardware.state_dict(),
    }
