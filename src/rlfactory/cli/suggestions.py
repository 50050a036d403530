"""Suggestions for the words of a command: completions of a word that is being typed; after
a refusal, a command with all fixes together, checked before it is shown.

What composes is imported where it is needed: a refusal may need none of it.
"""

import os
import shlex
from collections.abc import Sequence

from rlfactory.cli.flags import MULTIRUN_FLAGS
from rlfactory.config.problems import PlanError, Problem, fixed_words, override_key
from rlfactory.config.schema.root import GROUPS
from rlfactory.utils.dotted_keys import leaves


def working_command(problems: Sequence[Problem], typed: Sequence[str]) -> str | None:
    """A command with every problem of a refused one fixed.

    Args:
        problems: why the command was refused.
        typed: its words.

    Returns:
        The command; empty if it would be refused too; None if a problem has no fix that gives a
        plan, so that nothing can be tried.
    """
    from rlfactory.cli.multirun import planned_jobs
    from rlfactory.config.overrides import compose
    from rlfactory.config.plan import checked_traits
    from rlfactory.config.words import normalise_words

    command = [word for word in typed[:1] if word in ("check", "estimate")]
    is_plan = _is_planned(typed[len(command) :])
    # of what was misnamed first: other problems are those of a plan without it
    misnamed = [problem for problem in problems if problem.candidates]
    if not is_plan or (words := _fixed(misnamed or problems, typed, command)) is None:
        return None
    try:
        own = normalise_words([w for w in words[len(command) :] if w not in MULTIRUN_FLAGS])
        if MULTIRUN_FLAGS & {*words}:
            planned_jobs(own)
        else:
            found = compose(own)
            checked_traits(found.values, found.problems)
    except PlanError:
        return ""
    return f"rlfactory {shlex.join(words)}"


def _is_planned(words: Sequence[str]) -> bool:
    """Whether words are overrides, of which a plan can be made."""
    flags = ("-cd", "--config-dir", "--force", "--take-over", *MULTIRUN_FLAGS)
    overrides = [w for i, w in enumerate(words) if i == 0 or words[i - 1] not in flags[:2]]
    return all("=" in w or w.startswith("~") or w in flags for w in overrides)


def _fixed(
    problems: Sequence[Problem], words: Sequence[str], command: Sequence[str]
) -> list[str] | None:
    """The words with all fixes applied; None if a problem has no fix that gives a plan."""
    commands = [p.fix for p in problems if p.instead is None and p.fix.startswith("rlfactory ")]
    if full := [shlex.split(fix)[1:] for fix in commands]:
        # a command of its own, which leaves out what can't be kept
        return [*command, *full[0]] if len(full) == 1 and _is_planned(full[0]) else None
    fixed = list(words)
    done: set[str] = set()
    for problem in problems:
        if problem.instead is None and problem.fix.partition("=")[0] in done:
            continue  # two rules that ask for the same
        if (new := fixed_words(problem, fixed)) is None:
            return None
        fixed = new
        added = (problem.fix,) if problem.instead is None else problem.instead
        done |= {override_key(word) for word in added}
    return fixed


def complete(argv: Sequence[str]) -> int:
    """Answer `-sc query=SHELL`, or print Hydra's script of `-sc install=SHELL`."""
    from rlfactory.config._hydra import install_completion

    if not any(word.startswith("query=") for word in argv):
        install_completion(argv)
        return 0
    found = completions(os.environ.get("COMP_LINE", ""))
    print(("\n" if "query=fish" in argv else " ").join(found))
    return 0


def completions(line: str) -> list[str]:
    """Completions of a line's last word: an option of a group, or a key up to its next part."""
    from rlfactory.config.options import options
    from rlfactory.config.overrides import compose

    *typed, last = line.split(" ")
    group, equals, prefix = last.partition("=")
    if equals:
        known = options(group) if group in GROUPS else ()
        return [f"{group}={name}" for name in known if name.startswith(prefix)]
    try:
        values = compose([word for word in typed if "=" in word]).values
    except PlanError:
        values = {}
    keys = [key for key in (*GROUPS, *(key for key, _ in leaves(values))) if key.startswith(last)]
    ends = (key.find(".", len(last)) for key in keys)
    cut = (key[: end + 1] if end >= 0 else f"{key}=" for key, end in zip(keys, ends, strict=True))
    return [*dict.fromkeys(cut)]
