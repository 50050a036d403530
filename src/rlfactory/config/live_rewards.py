"""Several rewards that a Python caller hands over: the parts of `reward=combine`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, TypeGuard

from rlfactory.config.problems import PlanError, Problem


@dataclass(frozen=True)
class RewardPart:
    """One of several rewards.

    Attributes:
        reward: a function, a `Reward` or its class; or the name of an option.
        weight: its weight in the sum; None: 1, or as it is typed.
    """

    reward: Any
    weight: float | None = None

    @property
    def is_live(self) -> bool:
        """Whether it is an object, and no option."""
        return not isinstance(self.reward, str)


def are_several(value: object) -> TypeGuard[Mapping[str, Any] | list[Any] | tuple[Any, ...]]:
    """Whether a value is a list of rewards, or a mapping with one in it rather than settings."""
    if isinstance(value, Mapping):
        return any(_is_object(_part(inner).reward) for inner in value.values())
    return isinstance(value, list | tuple)


def reward_parts(value: Mapping[str, Any] | Iterable[Any]) -> dict[str, RewardPart]:
    """The parts by name: the keys of a mapping; of a list the names of functions and options.

    Args:
        value: rewards, each alone or in a pair with its weight.

    Raises:
        PlanError: one is no reward, or two have the same name.
    """
    given = [*value.items()] if isinstance(value, Mapping) else [(_name(v), v) for v in value]
    parts: dict[str, RewardPart] = {}
    for name, inner in given:
        part = _part(inner)
        if part.is_live and not _is_object(part.reward):
            message = f"{inner!r} is no reward; allowed is a function, a Reward or an option"
            raise PlanError([Problem(f"reward.{name}", message)])
        if name in parts or not name.isidentifier():
            message = "can't be its name; name each reward: reward={'correct': f, 'short': g}"
            raise PlanError([Problem(f"reward.{name}", message)])
        parts[name] = part
    return parts


def _part(value: Any) -> RewardPart:
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], Real):
        return RewardPart(value[0], float(value[1]))
    return RewardPart(value)


def _name(value: Any) -> str:
    reward = _part(value).reward
    if isinstance(reward, str):
        return reward
    named = reward if hasattr(reward, "__name__") else type(reward)
    return str(named.__name__).strip("<>")


def _is_object(value: object) -> bool:
    """Whether a value is a function, a `Reward` or its class."""
    return callable(value) or hasattr(type(value), "score")
