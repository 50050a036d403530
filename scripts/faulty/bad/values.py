"""Values of the wrong type, beyond their bounds, or that are none of the words that are allowed."""

import random
import re
import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from faulty.bad.case import Case, planned
from faulty.bad.known import Leaf, context, leaves

from rlfactory.utils.types import Interval, TargetNode

TYPED = {
    "words": ["nonsense", "'two words'", "1e", "0x", "--", "one", "'1.0.0'"],
    "fraction": ["2.5", "0.25", "-1.5", "1e-3"],
    "whole": ["7", "-3", "123456789"],
    "truth": ["true", "false"],
    "nothing": ["null", "None"],
    "list": ["[1,2]", "[]", "[a,[b]]"],
    "mapping": ["{a:1}", "{_args_:[1]}", "{a:{b:c}}"],
    "not finite": ["nan", "inf", "-inf", "1e400", "-1e999"],
    "empty": ["", "''"],
}
ADMITS = {
    int: {"whole"},
    float: {"whole", "fraction"},
    bool: {"truth"},
    str: {"words", "nothing as text", "empty"},
    list: {"list"},
    dict: {"mapping"},
    type(None): {"nothing"},
    None: {"nothing"},
    TargetNode: {"mapping"},
}


def of_wrong_type(rng: random.Random) -> Case:
    """A word for a number, a list for a word, and so on."""
    while True:
        words = context(rng)
        leaf = rng.choice(leaves(words))
        wrong = sorted({*TYPED} - _admitted(leaf.kind))
        if "anything" not in _admitted(leaf.kind) and wrong:
            kind = rng.choice(wrong)
            value = rng.choice(TYPED[kind])
            if kind != "words" or value.strip("'") not in _literals(leaf.kind):
                return _case(rng, f"a value of another type ({kind})", words, leaf, value)


def out_of_bounds(rng: random.Random) -> Case:
    """A number beyond what the annotation or the comment in `conf/` allows."""
    while True:
        words = context(rng)
        leaf = rng.choice(leaves(words))
        beyond = [*_beyond_annotation(leaf.kind), *_beyond_comment(leaf.comment)]
        if beyond:
            return _case(rng, "a number out of bounds", words, leaf, rng.choice(beyond))


def no_such_word(rng: random.Random) -> Case:
    """A word that isn't among those that the annotation or the comment lists."""
    while True:
        words = context(rng)
        leaf = rng.choice(leaves(words))
        listed = [*_literals(leaf.kind), *_listed(leaf.comment)]
        if listed and "words" not in _admitted(leaf.kind):
            wrong = rng.choice([f"{listed[0]}s", listed[-1].upper() + "x", "none_of_these"])
            return _case(rng, "a word that isn't listed", words, leaf, wrong)


def _case(rng: random.Random, problem: str, words: tuple[str, ...], leaf: Leaf, value: str) -> Case:
    return planned(rng, problem, [*words, f"{leaf.key}={value}"], leaf.key)


def _members(kind: Any) -> list[Any]:
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _members(args[0])
    if origin in (Union, types.UnionType):
        return [member for arg in args for member in _members(arg)]
    return [kind]


def _admitted(kind: Any) -> set[str]:
    """The kinds of TYPED that a type takes."""
    found = set[str]()
    for member in _members(kind):
        plain = get_origin(member) or member
        if plain is not Literal:
            found |= ADMITS.get(plain, {"anything"})
    return found


def _literals(kind: Any) -> list[str]:
    return [str(word) for m in _members(kind) if get_origin(m) is Literal for word in get_args(m)]


def _beyond_annotation(kind: Any) -> list[str]:
    found = []
    for member in [kind, *(get_args(kind) if get_origin(kind) is not Annotated else ())]:
        if get_origin(member) is not Annotated:
            continue
        for bound in get_args(member)[1:]:
            if isinstance(bound, Interval):
                found += _outside(bound.ge, bound.gt, bound.le, bound.lt)
    return found


def _outside(ge: float | None, gt: float | None, le: float | None, lt: float | None) -> list[str]:
    found = [f"{ge - 1:g}", "-1e30"] if ge is not None else []
    found += [f"{gt:g}", f"{gt - 3:g}"] if gt is not None else []
    found += [f"{le + 1:g}", "1e30"] if le is not None else []
    found += [f"{lt:g}", f"{lt + 2:g}"] if lt is not None else []
    return [number for number in found if number != "-1e30" or ge == 0]


def _beyond_comment(comment: str) -> list[str]:
    """Numbers that `[0, 1)`, `> 0`, `>= 1`, `0 or more`, `1 to 100` or `0 to below 1` shut out."""
    comment = comment.strip()
    if found := re.match(r"(?:in )?([\[(])(\d+), (\d+)([\])])", comment):
        opens, low, high, closes = found.groups()
        edges = ([low] if opens == "(" else []) + ([high] if closes == ")" else [])
        return [*edges, str(int(low) - 1), str(int(high) + 1)]
    if found := re.match(r"(>=?) (\d+)", comment):
        return [str(int(found[2]) - (found[1] == ">=")), str(int(found[2]) - 5)]
    if found := re.match(r"(\d+) or more", comment):
        return [str(int(found[1]) - 1)]
    if found := re.search(r"(\d+) to (below )?(\d+)$", comment):
        return [found[3] if found[2] else str(int(found[3]) + 1), str(int(found[1]) - 1)]
    return []


def _listed(comment: str) -> list[str]:
    """The words of `a | b | c`, where a comment is such a list."""
    found = re.match(r"[\w./-]+( \| [\w./-]+)+(?=$|[:;,])", comment.strip())
    return found[0].split(" | ") if found else []
