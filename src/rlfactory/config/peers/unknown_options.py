"""Options that do not exist: other spellings, hub ids and files as options, several at once."""

from collections.abc import Collection, Sequence

from rlfactory.config.named_models import is_hub_id
from rlfactory.config.peers import values
from rlfactory.config.peers.names import option_words, our_option
from rlfactory.config.peers.unknown_keys import FEW, UnknownKey
from rlfactory.config.problems import MISSPELT, Problem, closest

Words = tuple[str, ...]
COMPOSITES = {"reward": "combine", "logger": "several"}
"""Groups of which several options can be used at once, and the option that combines them."""


def explain_option(group: str, option: str, known: Collection[str]) -> Problem:
    """The problem of an option that does not exist, with what may be meant."""
    candidates = _meant(group, option, known)
    if candidates:
        message = f"there is no option {option}; it is {' '.join(candidates[0])} here"
        return UnknownKey(group, message, instead=candidates[0], candidates=tuple(candidates))
    if group == "prompts" and " " in option:
        message = f"{option!r} is a prompt; allowed are an option and, in Python, a list of prompts"
        return Problem(group, f"{message}; prompts=file reads them from prompts.path")
    return no_such_option(group, option, known)


def no_such_option(group: str, option: str, known: Collection[str], where: str = "") -> Problem:
    """The problem of an option of which nothing is known but the options that there are."""
    guess = closest(option, known, MISSPELT)
    meant = f". Did you mean {guess}?" if guess else ""
    some = f"; known are {', '.join(sorted(known))}" if len(known) <= FEW else ""
    message = f"there is no option {option}{some}{meant}{where}"
    return Problem(group, message, f"{group}={guess}" if guess else f"rlfactory list {group}")


def words_together(group: str, names: Sequence[str], known: Collection[str]) -> Words | None:
    """What to type for several options of a group in one run; None where that can't be."""
    combined = COMPOSITES.get(group)
    if combined is None or not {*names} <= {*known} or len(names) < 2:
        return None
    return (f"{group}={combined}", f"{group}.of=[{','.join(names)}]")


def _meant(group: str, option: str, known: Collection[str]) -> list[Words]:
    """What to type instead of an option, most fitting first; empty where nothing is known."""
    if together := words_together(group, option.split("+"), known):
        return [together]
    if our_option(group, option) in known:
        return [option_words(group, option)]
    if group == "prompts" and (is_hub_id(option) or "." in option):
        return values.prompts(option, {})
    if group == "reward" and ":" in option:
        return [(f"reward={kind}", f"reward.function={option}") for kind in FUNCTIONS]
    return []


FUNCTIONS = ("image_function", "function")
"""Rewards that call a function of the user's own."""
