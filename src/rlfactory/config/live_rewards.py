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
        if part.is_live and (fault := reward_fault(part.reward)) is not None:
            raise PlanError([Problem(f"reward.{name}", fault)])
        if name in parts or not name.isidentifier():
            message = "can't be its name; name each reward: reward={'correct': f, 'short': g}"
            raise PlanError([Problem(f"reward.{name}", message)])
        parts[name] = part
    return parts


def reward_fault(value: Any) -> str | None:
    """Why an object is no reward; None if it is one."""
    kind = value if isinstance(value, type) else type(value)
    if hasattr(value, "parameters") and hasattr(value, "config"):
        return f"is a {kind.__name__}, a network; reward=reward_model has its folder as its path"
    if hasattr(kind, "score"):
        wanted = [n for n in ("media", "main") if not hasattr(value, n)]
        if isinstance(value, type):
            wanted = [n for n in wanted if n != "main"]  # its constructor may set it
        lacks = f"{kind.__name__} lacks {', '.join(wanted)}"
        return f"{lacks}; derive it from rlfactory.reward.base.Reward" if wanted else None
    if isinstance(value, type):
        return f"{kind.__name__} is a class and no Reward; hand over an instance of it"
    if callable(value):
        return None
    return f"{value!r:.60} is no reward; allowed is a function, a Reward or an option"


def _part(value: Any) -> RewardPart:
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], Real):
        return RewardPart(value[0], float(value[1]))
    return RewardPart(value)


def _name(value: Any) -> str:
    reward = _part(value).reward
    if isinstance(reward, str):
        return reward.rpartition(":")[2]
    named = reward if hasattr(reward, "__name__") else type(reward)
    return str(named.__name__).strip("<>")


def _is_object(value: object) -> bool:
    """Whether a value is a function, a `Reward` or its class."""
    return callable(value) or hasattr(type(value), "score")
