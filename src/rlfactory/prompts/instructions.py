"""Requests with constraints whose fulfilment a program decides, for chat models, in the manner of
IFEval (arXiv 2311.07911). Prompts state them, a reward looks whether a completion fulfils them.

What is held out is whole: kinds of constraints, and phrasings of all kinds, so that an evaluation
tells whether following instructions was learned or these sentences.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, combinations
from random import Random
from typing import Any, Literal, get_args

from rlfactory.prompts.base import Prompt, PromptError
from rlfactory.prompts.ops.prompt_list import PromptList, shipped_texts
from rlfactory.utils.types import PositiveInt

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


Part = Literal["seen", "kinds", "phrasings"]
HELD_OUT: tuple[Kind, ...] = ("items", "upper", "ends_with")
SEEN_SHARE = 0.8
"""Of the subjects, from the first on: those of training. The others are those of evaluations."""


class InstructionsPrompts(PromptList):
    """Requests such as `Describe the moon. Use exactly 7 words. Avoid commas.`, with `constraints`.

    Training has `kinds` in all phrasings but the last. An evaluation has other subjects, and by
    `part` the same (`seen`), the kinds that training lacks (`kinds`), or the phrasing that it lacks
    (`phrasings`). PromptError for kinds of which too few are left.
    """

    metadata = ("constraints",)
    features = ()
    media = "texts"
    separate = True
    longest_tokens = 90

    def __init__(
        self,
        *,
        part: Part = "seen",
        held_out_kinds: list[Kind] | None = None,
        most: PositiveInt = 2,
        count: PositiveInt = 2000,
        held_out_count: PositiveInt = 256,
    ) -> None:
        """
        Args:
            part: What evaluations have: seen, other subjects alone; kinds, the held-out kinds of
                constraints; phrasings, the held-out phrasing of each.
            held_out_kinds: Kinds of constraints that are never trained on, some of words, one_word,
                items, json, lower, upper, no_comma, ends_with, starts_with, twice; null: items,
                upper, ends_with.
            most: Constraints of a prompt, at most; each prompt has 1 to this many.
            count: Prompts to train on.
            held_out_count: Prompts for evaluation.
        """
        held = HELD_OUT if held_out_kinds is None else tuple(held_out_kinds)
        trained = tuple(kind for kind in KINDS if kind not in held)
        evaluated = held if part == "kinds" else trained
        if not trained or not evaluated:
            raise PromptError(
                f"prompts.held_out_kinds={list(held)} leaves no kind"
                f" {'to train on' if held else 'for prompts.part=kinds'}"
            )
        cut = round(SEEN_SHARE * len(TEXTS["subjects"]))
        seen, others = TEXTS["subjects"][:cut], TEXTS["subjects"][cut:]
        last = len(TEXTS["words"]) - 1
        phrasings = [last] if part == "phrasings" else range(last)
        super().__init__(
            _distinct(count, Random("training"), seen, _together(trained, most), range(last)),
            _distinct(held_out_count, Random(part), others, _together(evaluated, most), phrasings),
        )


def _together(kinds: Sequence[Kind], most: int) -> list[tuple[Kind, ...]]:
    """Sets of at most `most` kinds that can stand in one prompt."""
    sets = chain.from_iterable(combinations(kinds, number) for number in range(1, most + 1))
    return [chosen for chosen in sets if agree(frozenset(chosen))]


def _distinct(
    count: int,
    random: Random,
    subjects: Sequence[str],
    sets: Sequence[tuple[Kind, ...]],
    phrasings: Sequence[int],
) -> list[Prompt]:
    """Different prompts: `count`, or as many as 20 times as many draws give."""
    made: dict[str, Prompt] = {}
    for _ in range(20 * count):
        constraints = [
            {"kind": kind, "value": draw_value(kind, random)} for kind in random.choice(sets)
        ]
        request = random.choice(TEXTS["requests"]).format(subject=random.choice(subjects))
        said = [stated(c["kind"], c["value"], random.choice(phrasings)) for c in constraints]
        text = " ".join([request, *said])
        made.setdefault(text, Prompt(text, {"constraints": constraints}))
        if len(made) == count:
            break
    return [*made.values()]
