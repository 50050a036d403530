"""Differences between two configurations, to decide whether they describe the same run."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Config = Mapping[str, Any]
IGNORED = ("run_dir", "choices")
"""Keys that are not compared: a run may be moved, and choices show in the values they bring."""
NO_EFFECT_ON_RESULTS = ("checkpoint", "guard", "distilled_to")
"""Groups of keys, or keys, that change nothing that is computed: an older run may lack some
of them, or have others that this version removed."""
Difference = tuple[str, object, object]
MISSING = "nothing"


def differences(old: Config, new: Config) -> list[Difference]:
    """Each key that differs, with its two values; of a group of which another option is chosen,
    the group alone.
    """
    before, after = old.get("choices", {}), new.get("choices", {})
    found: list[Difference] = []
    for key in [*old, *(key for key in new if key not in old)]:
        if key in IGNORED:
            continue
        below = [*_differing(key, old.get(key, MISSING), new.get(key, MISSING))]
        chosen = (before.get(key), after.get(key))
        if below and chosen[0] != chosen[1] and None not in chosen:
            below = [(key, *chosen)]
        found += below
    return found


def format_diff(found: Sequence[Difference]) -> str:
    """Differences in words."""
    return ", ".join(
        f"{key}: {format_value(old)} -> {format_value(new)}" for key, old, new in found
    )


def format_value(value: object) -> str:
    """A value as it is typed."""
    return (
        "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    )


def _differing(key: str, old: object, new: object) -> Iterator[Difference]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in dict.fromkeys([*old, *new]):
            yield from _differing(f"{key}.{name}", old.get(name, MISSING), new.get(name, MISSING))
    elif MISSING in (old, new) and key.split(".")[0] in NO_EFFECT_ON_RESULTS:
        return
    elif old != new or isinstance(old, bool) != isinstance(new, bool):
        yield key, old, new
