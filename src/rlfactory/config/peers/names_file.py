"""names.yaml: what other libraries call the keys and options of this one."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml


@cache
def content() -> dict[str, Any]:
    """The file, whose values are texts alone: `no` and `true` are names."""
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    loaded: dict[str, Any] = yaml.load(
        Path(__file__).with_name("names.yaml").read_text("utf-8"), loader
    )
    return loaded


def option_words(group: str, name: str) -> tuple[str, ...]:
    """What to type for an option by another name; the name itself where it has none."""
    spelled = name.lower().replace("-", "_")
    first, *more = content()["options"].get(group, {}).get(spelled, spelled).split()
    return (first if "=" in first else f"{group}={first}", *more)


def our_option(group: str, name: str) -> str:
    """An option by another name; the name in lower case where it has none."""
    return option_words(group, name)[0].partition("=")[2]
