"""Constraints on a text whose fulfilment a program decides, in the manner of IFEval (arXiv
2311.07911). Torch-free: prompts state them, a reward looks whether a completion fulfils them.
"""

import json
import re
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Literal, get_args

from rlfactory.prompts.ops.prompt_list import shipped_texts

Kind = Literal[
    "words",
    "one_word",
    "items",
    "json",
    "lower",
    "upper",
    "no_comma",
    "ends_with",
    "starts_with",
    "twice",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
TEXTS = shipped_texts("instructions")
APART: tuple[frozenset[Kind], ...] = (
    frozenset({"words", "one_word", "json"}),
    frozenset({"items", "one_word", "json"}),
    frozenset({"lower", "upper", "starts_with"}),
    frozenset({"upper", "ends_with"}),
    frozenset({"upper", "twice"}),
    frozenset({"ends_with", "items"}),
    frozenset({"json", "no_comma", "twice"}),
    frozenset({"json", "upper", "ends_with"}),
    frozenset({"json", "starts_with"}),
    frozenset({"items", "starts_with"}),
    frozenset({"one_word", "ends_with", "twice"}),
    frozenset({"one_word", "starts_with", "no_comma"}),
)
"""Kinds of which a prompt has one at most: together they can't be fulfilled, or say one thing."""


def agree(kinds: frozenset[Kind]) -> bool:
    """Whether kinds of constraints can stand in one prompt."""
    return all(len(kinds & apart) < 2 for apart in APART)


def draw_value(kind: Kind, random: Random) -> Any:
    """The number, word or words of a constraint, None where its kind has none."""
    draws: Mapping[Kind, Callable[[], Any]] = {
        "words": lambda: random.randint(4, 12),
        "items": lambda: random.randint(2, 4),
        "json": lambda: sorted(random.sample(TEXTS["keys"], 2)),
        "ends_with": lambda: random.choice(TEXTS["endings"]),
        "starts_with": lambda: random.choice(TEXTS["beginnings"]),
        "twice": lambda: random.choice(TEXTS["words_of_texts"]),
    }
    return draws[kind]() if kind in draws else None


def stated(kind: Kind, value: Any, phrasing: int) -> str:
    """A constraint as a sentence, in one of its phrasings; -1 is the one that is held out."""
    shown = " and ".join(f'"{key}"' for key in value) if isinstance(value, list) else value
    return TEXTS[kind][phrasing].format(value=shown)


def is_fulfilled(text: str, kind: Kind, value: Any) -> bool:
    """Whether a text, without white space around it, fulfils a constraint; an empty one none."""
    text = text.strip()
    return bool(text) and CHECKS[kind](text, value)


def fewest_words(kind: Kind, value: Any) -> int | None:
    """Words of the shortest text that fulfils a constraint on length or form; None for others."""
    return {"words": value, "items": value, "one_word": 1, "json": 1}.get(kind)


def _count(text: str, word: str) -> int:
    return len(re.findall(rf"\b{re.escape(word)}\b", text, re.IGNORECASE))


def _is_list(text: str, count: int) -> bool:
    lines = [line for line in text.splitlines() if line.strip()]
    return len(lines) == count and all(re.match(r"- \S", line) for line in lines)


def _has_keys(text: str, keys: list[str]) -> bool:
    try:
        found = json.loads(text)
    except ValueError:
        return False
    return isinstance(found, dict) and set(found) == set(keys)


CHECKS: Mapping[Kind, Callable[[str, Any], bool]] = {
    "words": lambda text, count: len(text.split()) == count,
    "one_word": lambda text, _: len(text.split()) == 1,
    "items": _is_list,
    "json": _has_keys,
    "lower": lambda text, _: text.islower(),
    "upper": lambda text, _: text.isupper(),
    "no_comma": lambda text, _: "," not in text,
    "ends_with": lambda text, end: text.endswith(end),
    "starts_with": lambda text, start: text.startswith(start),
    "twice": lambda text, word: _count(text, word) == 2,
}
