"""Sums and differences of small numbers, with their answers: a task that a verifier can check."""

from itertools import product
from operator import add, mul, sub

from rlfactory.prompts.base import Prompt, PromptError
from rlfactory.prompts.ops.held_out import held_out_texts
from rlfactory.prompts.ops.prompt_list import PromptList
from rlfactory.utils.types import Fraction, PositiveInt

OPERATIONS = {"+": add, "-": sub, "*": mul}
LARGEST = 300
"""The largest number that `largest` may be: all problems are made in advance."""


class Arithmetic(PromptList):
    """All problems such as `47+38=` with numbers from 0 to `largest`, and `answer`, a text.

    `held_out_share` of the unordered pairs of numbers is held out for evaluation, with both orders
    and all `operations`: where `47+38=` is held out, `38+47=` and `47-38=` are too. PromptError
    for an unknown operation, for none, or where no problem is left to train on.
    """

    metadata = ("answer",)
    features = ()
    media = "texts"
    longest_tokens = 9

    def __init__(
        self,
        *,
        largest: PositiveInt = 99,
        operations: list[str] | None = None,
        held_out_share: Fraction = 0.1,
    ) -> None:
        """
        Args:
            largest: Numbers are from 0 to this, at most 300.
            operations: Some of +, -, *.
            held_out_share: 0 to below 1: share of the pairs of numbers, by a hash, held out for
                evaluation.
        """
        symbols = list(dict.fromkeys(["+", "-"] if operations is None else operations))
        _check(largest, symbols)
        numbers = range(largest + 1)
        pairs = (_pair(a, b) for a, b in product(numbers, numbers) if a <= b)
        chosen = held_out_texts(pairs, held_out_share)
        kept: list[Prompt] = []
        held: list[Prompt] = []
        for symbol, a, b in product(symbols, numbers, numbers):
            (held if _pair(a, b) in chosen else kept).append(problem(a, symbol, b))
        if not kept:
            raise PromptError(f"prompts.held_out_share={held_out_share:g} leaves none to train on")
        super().__init__(kept, held or None)


def problem(a: int, symbol: str, b: int) -> Prompt:
    """The prompt `a symbol b =` without spaces, and its answer."""
    return Prompt(f"{a}{symbol}{b}=", {"answer": str(OPERATIONS[symbol](a, b))})


def _pair(a: int, b: int) -> str:
    return f"{min(a, b)} {max(a, b)}"


def _check(largest: int, symbols: list[str]) -> None:
    unknown = [symbol for symbol in symbols if symbol not in OPERATIONS]
    if unknown or not symbols:
        raise PromptError(
            f"prompts.operations={symbols}: allowed are {', '.join(OPERATIONS)}, at least one; type"
            ' \'prompts.operations=["+","-"]\''
        )
    if largest > LARGEST:
        raise PromptError(f"prompts.largest={largest} is too large; at most {LARGEST}")
