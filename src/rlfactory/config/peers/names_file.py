"""names.yaml: what other libraries call the keys and options of this one."""

from functools import cache
from pathlib import Path
from typing import Any

from rlfactory.utils.data_files import read_yaml


@cache
def content() -> dict[str, Any]:
    """The file, whose values are texts alone: `no` and `true` are names."""
    loaded: dict[str, Any] = read_yaml(Path(__file__).with_name("names.yaml"), texts_only=True)
    return loaded


def option_words(group: str, name: str) -> tuple[str, ...]:
    """What to type for an option by another name; the name itself where it has none."""
    spelled = name.lower().replace("-", "_")
    first, *more = content()["options"].get(group, {}).get(spelled, spelled).split()
    return (first if "=" in first else f"{group}={first}", *more)


def our_option(group: str, name: str) -> str:
    """An option by another name; the name in lower case where it has none."""
    return option_words(group, name)[0].partition("=")[2]
