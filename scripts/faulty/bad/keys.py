"""Keys, options and groups that there are not."""

import random

from faulty.bad.case import Case, misspelt, planned
from faulty.bad.known import context, leaves, names

from rlfactory.config.options import options
from rlfactory.config.schema.root import COMPONENTS, GROUPS

BEFORE = ("", "", "+", "++")


def no_such_key(rng: random.Random) -> Case:
    """A slip in one of a key's parts, typed as it is or behind a plus."""
    words = context(rng)
    parts = rng.choice(leaves(words)).key.split(".")
    depth = rng.randrange(len(parts))
    beside = {*names(words, ".".join(parts[: depth + 1])), *GROUPS}
    parts[depth] = misspelt(rng, parts[depth], beside)
    key, value = ".".join(parts), rng.choice(["1", "0.5", "true", "abc", "null", "[1]"])
    before = rng.choice(BEFORE)
    # behind a plus a new branch is made, and it's the branch that nobody knows
    return planned(
        rng, "no such key", [*words, f"{before}{key}={value}"], ".".join(parts[: depth + 1])
    )


def below_a_value(rng: random.Random) -> Case:
    """A key below one that is no mapping."""
    words = context(rng)
    leaf = rng.choice([x for x in leaves(words) if isinstance(x.value, int | float | str)])
    return planned(
        rng, "a key below a value", [*words, f"{leaf.key}.{rng.choice('xyz')}=1"], leaf.key
    )


def taken_away(rng: random.Random) -> Case:
    """A key that every run needs, removed."""
    words = context(rng)
    leaf = rng.choice([x for x in leaves(words) if x.key.split(".")[0] not in COMPONENTS])
    key = rng.choice([leaf.key, rng.choice(COMPONENTS)])
    return planned(rng, "what is needed is taken away", [*words, f"~{key}"], key)


def taken_away_though_absent(rng: random.Random) -> Case:
    """A removal of nothing."""
    words = context(rng)
    key = misspelt(
        rng, rng.choice(leaves(words)).key.split(".")[0], [*names(words, "seed"), *GROUPS]
    )
    return planned(rng, "a removal of what isn't there", [*words, f"~{key}"], key)


def added_though_there(rng: random.Random) -> Case:
    """A plus before what is there already."""
    words = context(rng)
    key = rng.choice([*(x.key for x in leaves(words) if x.value is not None), *COMPONENTS])
    value = rng.choice(sorted(options(key))) if key in GROUPS else "1"
    return planned(rng, "a plus before what is there", [*words, f"+{key}={value}"], key)


def no_such_option(rng: random.Random) -> Case:
    """A slip in an option's name."""
    group = rng.choice([*GROUPS])
    known = options(group)
    wrong = misspelt(rng, rng.choice([o for o in sorted(known) if o.isidentifier()]), known)
    names = (group, wrong)
    return planned(rng, "no such option", [*_others(rng, group), f"{group}={wrong}"], *names)


def no_such_group(rng: random.Random) -> Case:
    """A slip in a group's name."""
    group = rng.choice([*GROUPS])
    wrong = misspelt(rng, group, [*GROUPS, *names((), "seed")])
    option = rng.choice(sorted(options(group)))
    return planned(rng, "no such group", [f"{rng.choice(BEFORE)}{wrong}={option}"], wrong)


def a_choice_that_is_none(rng: random.Random) -> Case:
    """null, nothing, a list, a mapping or a number where an option is to be named; one moved."""
    group = rng.choice([g for g in GROUPS if g != "experiment"])
    option = rng.choice(sorted(options(group)))
    word = rng.choice(
        [f"{group}={v}" for v in ("null", "", "{}", "{a:1}", "7", "1.5", "true", f"'{option} '")]
        + [f"{group}@x={option}", f"{group}@_global_={option}", f"+{group}={option}", f"{group}=[]"]
        + [f"{group}=../{option}", f"{group}={option}.yaml", f"{group}=[{option},{option}]"]
    )
    return planned(rng, "no choice of an option", [word], group)


def _others(rng: random.Random, group: str) -> tuple[str, ...]:
    return tuple(word for word in context(rng) if not word.startswith(f"{group}="))
