"""Options of a live class (an algorithm, a sampler): typed as those of a shipped one are."""

from collections.abc import Sequence

from rlfactory.config.live import LiveArguments
from rlfactory.config.problems import Problem, override_key, unknown_key
from rlfactory.config.schema.signature import live_signature

GROUPS = ("algo", "dynamics")


def live_options(arguments: LiveArguments, typed: Sequence[str]) -> tuple[list[str], list[Problem]]:
    """The words of a call, and the problems of those that set what its classes do not take.

    An option that a class has and the option it derives from has not is added: `algo.NAME=VALUE`
    becomes `++algo.NAME=VALUE`.
    """
    words, problems = [], []
    for word in typed:
        key = override_key(word)
        group, _, option = key.partition(".")
        live = arguments.objects.get(group) if group in GROUPS and option else None
        if live is None or word.startswith(("+", "~")):
            words.append(word)
        elif not isinstance(live, type):
            message = "can't be set: the algorithm is an instance; hand over its class"
            problems.append(Problem(key, message))
        elif option.partition(".")[0] not in (known := live_signature(group, live).parameters):
            problems.append(unknown_key(key, known))
        else:
            words.append(word if "." in option else f"++{word}")
    return words, problems
