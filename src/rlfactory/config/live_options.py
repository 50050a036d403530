"""Options of a live algorithm's class: typed as the options of a shipped one are."""

from collections.abc import Sequence

from rlfactory.config.live import LiveArguments
from rlfactory.config.problems import Problem, override_key, unknown_key
from rlfactory.config.schema.signature import live_signature

GROUP = "algo"


def live_options(arguments: LiveArguments, typed: Sequence[str]) -> tuple[list[str], list[Problem]]:
    """The words of a call, and the problems of those that set what its algorithm does not take.

    An option that the class has and the option it derives from has not is added: `algo.NAME=VALUE`
    becomes `++algo.NAME=VALUE`.
    """
    if GROUP not in arguments.objects:
        return [*typed], []
    algo = arguments.objects[GROUP]
    known = live_signature(GROUP, algo).parameters
    words, problems = [], []
    for word in typed:
        key = override_key(word)
        group, _, option = key.partition(".")
        if group != GROUP or not option or word.startswith(("+", "~")):
            words.append(word)
        elif not isinstance(algo, type):
            message = "can't be set: the algorithm is an instance; hand over its class"
            problems.append(Problem(key, message))
        elif option.partition(".")[0] not in known:
            problems.append(unknown_key(key, known))
        else:
            words.append(word if "." in option else f"++{word}")
    return words, problems
