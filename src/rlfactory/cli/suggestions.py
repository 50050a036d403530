"""The command that is suggested after a refusal: all fixes together, checked before it is shown."""

import shlex
from collections.abc import Sequence

from rlfactory.cli.flags import MULTIRUN_FLAGS
from rlfactory.config.problems import PlanError, Problem, fixed_words, override_key


def working_command(problems: Sequence[Problem], typed: Sequence[str]) -> str | None:
    """A command with every problem of a refused one fixed.

    Args:
        problems: why the command was refused.
        typed: its words.

    Returns:
        The command; empty if it would be refused too; None if a problem has no fix that gives a
        plan, so that nothing can be tried.
    """
    command = [word for word in typed[:1] if word in ("check", "estimate")]
    is_plan = _is_planned(typed[len(command) :])
    # of what was misnamed first: other problems are those of a plan without it
    misnamed = [problem for problem in problems if problem.candidates]
    if not is_plan or (words := _fixed(misnamed or problems, typed, command)) is None:
        return None
    try:
        _check(words[len(command) :])
    except PlanError:
        return ""
    return f"rlfactory {shlex.join(words)}"


def _check(words: Sequence[str]) -> None:
    """PlanError with the problems of a command, or of one of its jobs."""
    from rlfactory.cli.multirun import planned_jobs
    from rlfactory.config.overrides import compose
    from rlfactory.config.plan import checked_traits
    from rlfactory.config.words import normalise_words

    own = normalise_words([word for word in words if word not in MULTIRUN_FLAGS])
    if MULTIRUN_FLAGS & {*words}:
        planned_jobs(own)
        return
    found = compose(own)
    checked_traits(found.values, found.problems)


def _is_planned(words: Sequence[str]) -> bool:
    """Whether words are overrides, of which a plan can be made."""
    flags = ("-cd", "--config-dir", "--force", "--take-over", *MULTIRUN_FLAGS)
    overrides = [w for i, w in enumerate(words) if i == 0 or words[i - 1] not in flags[:2]]
    return all("=" in w or w.startswith("~") or w in flags for w in overrides)


def _fixed(
    problems: Sequence[Problem], words: Sequence[str], command: Sequence[str]
) -> list[str] | None:
    """The words with all fixes applied; None if a problem has no fix that gives a plan."""
    full = [
        shlex.split(p.fix)[1:]
        for p in problems
        if p.instead is None and p.fix.startswith("rlfactory ")
    ]
    if full:
        # a command of its own, which leaves out what can't be kept
        return [*command, *full[0]] if len(full) == 1 and _is_planned(full[0]) else None
    fixed = list(words)
    done: set[str] = set()
    for problem in problems:
        if problem.instead is None and problem.fix.partition("=")[0] in done:
            continue  # two rules that ask for the same
        new = fixed_words(problem, fixed)
        if new is None:
            return None
        fixed = new
        added = (problem.fix,) if problem.instead is None else problem.instead
        done |= {override_key(word) for word in added}
    return fixed
