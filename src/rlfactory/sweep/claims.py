"""A claim of a table's source as a comparison of its rows, and its check against the table."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlfactory.config.problems import Problem, closest

BEFORE = "before"
"""In the place of a row: the other row itself, before training."""
KINDS = ("better", "higher", "lower", "no_worse", "equal", "order")
_ABOUT_QUALITY = ("better", "no_worse", "order")
_WITH_MARGIN = ("no_worse", "equal")
Operand = str | float


@dataclass(frozen=True)
class Claim:
    """What a source says of rows, in one of these forms:

    - `better`, `higher` or `lower`: a row, `than` another one, `before` or a number. Better is what
      the column says;
    - `no_worse`: a row, `than` another one, by no more than the `margin`;
    - `equal`: a row and another one, `before` or a number, up to the `margin`;
    - `order`: rows, each better than the next one.

    Attributes:
        text: the claim in a sentence.
        score: the column that decides it.
        stand_in: another column, whose stand-in decides it in sizes that have none for `score`.
        source: where it is said.
        margin: in the column's unit; may be a mapping by size.
    """

    text: str
    score: str
    source: str = ""
    stand_in: str = ""
    better: str | None = None
    higher: str | None = None
    lower: str | None = None
    no_worse: str | None = None
    equal: list[str | float] | None = None
    order: list[str] | None = None
    than: str | float | None = None
    margin: float | dict[str, float] | None = None

    @property
    def kind(self) -> str:
        """Its form."""
        return next(kind for kind in KINDS if getattr(self, kind) is not None)

    @property
    def about_quality(self) -> bool:
        """Whether it depends on whether more or less of the score is better."""
        return self.kind in _ABOUT_QUALITY

    @property
    def pairs(self) -> list[tuple[str, Operand]]:
        """The compared rows: the first of each pair is the one that is claimed to be ahead."""
        if self.order is not None:
            return [*zip(self.order, self.order[1:], strict=False)]
        if self.equal is not None:
            return [(str(self.equal[0]), self.equal[1])]
        assert self.than is not None
        return [(getattr(self, self.kind), self.than)]

    def margin_of(self, size: str) -> float:
        """The margin in a size; 0 for claims without one."""
        margin = self.margin.get(size) if isinstance(self.margin, dict) else self.margin
        return margin or 0.0


def claim_problems(
    claims: Sequence[Claim],
    rows: Sequence[str],
    columns: Mapping[str, Mapping[str, Any]],
    sizes: Sequence[str],
) -> Iterator[Problem]:
    """What is wrong with claims, beside what is known of the table."""
    for number, claim in enumerate(claims):
        place = f"claims.{number}"
        wrong = [*_of_form(claim, place)]
        yield from wrong
        if len(_forms(claim)) != 1:
            continue
        yield from _of_score(claim, place, columns, sizes)
        yield from _of_margin(claim, place, sizes)
        if not wrong:
            yield from _of_rows(claim, place, rows)


def form_problems(claims: Sequence[Claim]) -> Iterator[Problem]:
    """What is wrong with claims by themselves."""
    for number, claim in enumerate(claims):
        yield from _of_form(claim, f"claims.{number}")


def _forms(claim: Claim) -> list[str]:
    return [kind for kind in KINDS if getattr(claim, kind) is not None]


def _of_form(claim: Claim, place: str) -> Iterator[Problem]:
    if len(forms := _forms(claim)) != 1:
        named = " and ".join(forms) or "none"
        yield Problem(place, f"has {named}; allowed is exactly one of {', '.join(KINDS)}")
        return
    needs_than = claim.kind not in ("equal", "order")
    if needs_than and claim.than is None:
        yield Problem(f"{place}.than", f"is missing; allowed is a row, {BEFORE} or a number")
    if not needs_than and claim.than is not None:
        yield Problem(f"{place}.than", f"has no meaning beside {claim.kind}")
    if claim.equal is not None and (len(claim.equal) != 2 or not isinstance(claim.equal[0], str)):
        allowed = f"a row, and a row, {BEFORE} or a number"
        yield Problem(f"{place}.equal", f"is {claim.equal!r}; allowed is [{allowed}]")
    if claim.order is not None and len(claim.order) < 2:
        yield Problem(f"{place}.order", f"is {claim.order!r}; allowed are two rows or more")


def _of_score(
    claim: Claim, place: str, columns: Mapping[str, Mapping[str, Any]], sizes: Sequence[str]
) -> Iterator[Problem]:
    if claim.score not in columns:
        yield _unknown(f"{place}.score", claim.score, "column", columns)
        return
    with_one = [
        name
        for name, node in columns.items()
        if any(isinstance(node.get(size), Mapping) for size in sizes)
    ]
    if claim.stand_in and claim.stand_in not in with_one:
        yield _unknown(f"{place}.stand_in", claim.stand_in, "column with a stand-in", with_one)
    column = columns[claim.score]
    if claim.about_quality and column.get("better") == "neither":
        message = f"is of the column {claim.score}, in which neither more nor less is better"
        yield Problem(f"{place}.{claim.kind}", f"{message}; allowed are higher, lower, equal")
    measures = [_measure(column[size]) for size in sizes if column.get(size)]
    compares_before = any(second == BEFORE for _, second in _pairs(claim))
    if compares_before and not any(m.startswith("eval/") for m in measures):
        message = f"is {BEFORE}, but the column {claim.score} is measured by no evaluation"
        yield Problem(f"{place}.{'equal' if claim.equal else 'than'}", message)


def _measure(node: object) -> str:
    """The measure of a column in a size: it may have a label and a scale of its own."""
    return str(node.get("measure", "") if isinstance(node, Mapping) else node)


def _pairs(claim: Claim) -> list[tuple[str, Operand]]:
    """The pairs of a claim whose form may be wrong."""
    if claim.equal is not None and len(claim.equal) != 2:
        return []
    return claim.pairs if claim.than is not None or claim.equal or claim.order else []


def _of_margin(claim: Claim, place: str, sizes: Sequence[str]) -> Iterator[Problem]:
    key = f"{place}.margin"
    if claim.kind not in _WITH_MARGIN:
        if claim.margin is not None:
            yield Problem(key, f"has no meaning beside {claim.kind}")
        return
    if claim.margin is None:
        yield Problem(key, f"is missing; {claim.kind} needs one, in the column's unit")
    elif isinstance(claim.margin, dict) and {*claim.margin} != {*sizes}:
        yield Problem(
            key, f"is {claim.margin!r}; allowed is a number for each of {', '.join(sizes)}"
        )
    elif any(claim.margin_of(size) <= 0 for size in sizes):
        yield Problem(key, f"is {claim.margin!r}; allowed is more than 0")


def _of_rows(claim: Claim, place: str, rows: Sequence[str]) -> Iterator[Problem]:
    for first, second in claim.pairs:
        if first == second:
            yield Problem(f"{place}.{claim.kind}", f"compares {first} with itself")
    named = [first for first, _ in claim.pairs] + [claim.pairs[-1][1]]
    for name in named:
        if isinstance(name, str) and name not in rows and name != BEFORE:
            yield _unknown(f"{place}.{claim.kind}", name, "row", rows)
    if BEFORE in [first for first, _ in claim.pairs]:
        yield Problem(f"{place}.{claim.kind}", f"begins with {BEFORE}; allowed is a row")


def _unknown(key: str, name: str, what: str, known: Sequence[str] | Mapping[str, Any]) -> Problem:
    guess = closest(name, known)
    suggestion = f". Did you mean {guess}?" if guess else ""
    return Problem(key, f"there is no {what} {name}; known are {'; '.join(known)}{suggestion}")
