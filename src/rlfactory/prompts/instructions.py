"""Requests with constraints whose fulfilment a program decides, for chat models.

What is held out is whole: kinds of constraints, and phrasings of all kinds, so that an evaluation
tells whether following instructions was learned or these sentences.
"""

from collections.abc import Sequence
from itertools import chain, combinations
from random import Random
from typing import Literal

from rlfactory.prompts.base import Prompt, PromptError
from rlfactory.prompts.ops.constraints import KINDS, TEXTS, Kind, agree, draw_value, stated
from rlfactory.prompts.ops.prompt_list import PromptList
from rlfactory.utils.types import PositiveInt

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
