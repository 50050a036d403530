"""What can't be read as KEY=VALUE, or reads as something that no run can be told."""

import random

from faulty.bad.case import Case, misspelt, planned
from faulty.bad.known import context, leaves

from rlfactory.config.options import options

SUBCOMMANDS = (
    "check",
    "list",
    "explain",
    "resume",
    "sample",
    "evaluate",
    "export",
    "inspect",
    "serve",
)
UNREADABLE = (
    *("[1,2", "1]", "{a:1", "a:1}", "'open", '"open', "[a,,b]", "{:}", "{a}", "(1", "1)", "a)b"),
    *(
        "${",
        "${}",
        "${nope}",
        "${nope.deeper}",
        "${oc.env:NO_SUCH_VARIABLE}",
        "${x:}",
        "${${seed}}",
    ),
    *("choice(1,2", "range(1,", "int(", "float(a", "glob(", "$(id)\n;", "a,b", "1,2,3"),
    *(
        "choice(1,2)",
        "range(1,4)",
        "sort(3,1)",
        "glob(*)",
        "shuffle(1,2)",
        "int(abc)",
        "json_str(3)",
    ),
    *("[" * 300, "{a:" * 200, "[" * 60 + "]" * 60, "'a'b'", "a\\", "\x01", "\udcff\udcfe"),
)
NO_KEYS = ("=3", "==", "=", "+=3", "~=", "@x=1", "++", "~", "...=3", ".seed=3", "seed.=3", "a..b=1")


def unreadable(rng: random.Random) -> Case:
    """A value that no grammar takes, or that isn't one value, for a key that is a number."""
    words = context(rng)
    numbers = [x.key for x in leaves(words) if isinstance(x.value, int | float) and "." in x.key]
    key, value = rng.choice(numbers), rng.choice(UNREADABLE)
    return planned(rng, "a value that can't be read", [*words, f"{key}={value}"], key)


def without_key(rng: random.Random) -> Case:
    """A word that names no key."""
    word = rng.choice(NO_KEYS)
    return planned(rng, "no key", [*context(rng), word], word, word.strip("+~=3"))


def without_equals(rng: random.Random) -> Case:
    """A key or an option by itself, or a flag that there is not."""
    words = context(rng)
    key = rng.choice([x.key for x in leaves(words)])
    flags = ["--verbose", "--lr", "-x", "--froce", "--epochs", "-", "--", "--until"]
    odd = rng.choice([key, key.replace(".", " "), rng.choice(sorted(options("algo"))), *flags, ""])
    return planned(rng, "neither a command nor KEY=VALUE", [*words, odd], odd or "''", "is neither")


def misspelt_command(rng: random.Random) -> Case:
    """A subcommand with a slip."""
    wrong = misspelt(rng, rng.choice(SUBCOMMANDS), SUBCOMMANDS)
    rest = rng.choice([(), ("algo=grpo",), ("RUN",), ("algo",)])
    return Case("no such command", (wrong, *rest), (wrong,))


def not_utf8(rng: random.Random) -> Case:
    """Bytes that are no text, as a shell in another encoding sends."""
    words = context(rng)
    key = rng.choice([x.key for x in leaves(words) if isinstance(x.value, int | float)])
    odd = rng.choice(["\udcff", "\udce9t\udce9", "3\udc80", "\udcc3("])
    word = rng.choice([f"{key}={odd}", f"{key}{odd}=3", odd, f"algo={odd}", f"--{odd}"])
    return planned(rng, "bytes that are no UTF-8", [*words, word], key, "algo", ascii(odd)[1:-1])


def very_long(rng: random.Random) -> Case:
    """A value, a key or a list far beyond sense."""
    words = context(rng)
    key = rng.choice([x.key for x in leaves(words) if isinstance(x.value, int | float)])
    size = rng.choice([1_000, 5_000, 50_000])
    word = rng.choice(
        [
            f"{key}={'x' * size}",
            f"{key}=[{','.join('1' * (size // 2))}]",
            f"{key}{'y' * size}=3",
            f"{key}=-{'9' * size}x",
            f"{key}=[{'9' * size}]",
            "algo=" + "g" * size,
            "z" * size,
        ]
    )
    return planned(rng, "far too long", [*words, word], key, "algo", "zzz")


def contradictory(rng: random.Random) -> Case:
    """The same key twice, the second time wrong."""
    words = context(rng)
    key = rng.choice([x.key for x in leaves(words) if isinstance(x.value, float)])
    value = rng.choice(["abc", "[]", "null,3", "nan"])
    return planned(rng, "twice, and wrong", [*words, f"{key}=0.5", f"{key}={value}"], key)


def swept(rng: random.Random) -> Case:
    """Several runs, one of which can't be."""
    algo = rng.choice(sorted(options("algo")))
    wrong, name = rng.choice(
        [
            (f"algo=grpo,{misspelt(rng, algo, options('algo'))}", "algo"),
            ("seed=y,x", "seed"),
            ("sede=0,1", "sede"),
            ("optimizer.lrr=1e-4,1e-5", "optimizer.lrr"),
            ("optimizer.lr=x,y", "optimizer.lr"),
            ("reward=shapes,shpaes", "reward"),
            ("seed=1,2 iterations=0", "iterations"),
            ("seed=1,2 iterations", "iterations"),
            ("seed=1,[", "seed"),
        ]
    )
    return Case("a multirun with a fault", ("-m", *wrong.split(" ")), (name,))
