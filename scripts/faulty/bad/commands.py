"""Subcommands without what they need, or with what they can't use."""

import random
from functools import cache

from faulty.bad.case import Case, misspelt
from faulty.bad.known import context, leaves

from rlfactory.config.overrides import plan_from_words as plan_of
from rlfactory.config.schema.root import GROUPS

ON_RUN = ("resume", "sample --prompt x", "evaluate", "export --to out", "inspect")
RUNS = {
    "nowhere": {},
    "folder": {"folder/notes.txt": b"mine"},
    "file": {"file": b"mine"},
    "broken": {"broken/config.yaml": b"a: ["},
    "bytes": {"bytes/config.yaml": b"a: \xff\xfe"},
    "bare": {"bare/config.yaml": b"7\n"},
    "old": {"old/config.yaml": b"seed: 0\niterations: 3\n"},
    "hostile": {"hostile/config.yaml": b"seed: !!python/object/apply:os.system [id]\n"},
    "folder/config.yaml": {"folder/config.yaml/x": b""},
    "\udcff": {},
    "n" * 300: {},
}
FLAGS = (
    ("resume old --until 0", "--until"),
    ("resume old --until -3", "--until"),
    ("resume old --until x", "--until"),
    ("resume old --until 1.5", "--until"),
    ("resume old --until", "--until"),
    ("resume", "RUN"),
    ("resume old other", "other"),
    ("resume old seed=3", "seed=3"),
    ("resume old --forec", "--forec"),
    ("resume --until 3", "RUN"),
    ("sample", "RUN"),
    ("sample old", "--prompt"),
    ("sample old --prompt", "--prompt"),
    ("sample old --prompt x --count 0", "--count"),
    ("sample old --prompt x --count -1", "--count"),
    ("sample old --prompt x --count many", "--count"),
    ("sample old --prompt x --seed 1.5", "--seed"),
    ("sample old --prompt x --seed s", "--seed"),
    ("sample old --prompt x --weights best", "--weights"),
    ("sample old --prompt x --out", "--out"),
    ("sample old x --prompt y", "x"),
    ("evaluate", "RUN"),
    ("evaluate seed=3", "RUN"),
    ("evaluate --best", "RUN"),
    ("evaluate old iterations=3", "iterations"),
    ("evaluate old algo=grpo", "algo"),
    ("evaluate old run_dir=x", "run_dir"),
    ("evaluate old --worst", "--worst"),
    ("evaluate old other", "other"),
    ("export old", "--to"),
    ("export", "RUN"),
    ("export old --to", "--to"),
    ("export old --to file", "--to"),
    ("export old --to old", "--to"),
    ("export old --to out --weights reference", "--weights"),
    ("export old --to out --fuse", "--fuse"),
    ("inspect", "RUN"),
    ("inspect old --prompts 0", "--prompts"),
    ("inspect old --prompts all", "--prompts"),
    ("inspect old --weights old", "--weights"),
    ("explain", "KEY"),
    ("explain seed=3", "KEY"),
    ("explain =", "KEY"),
    ("explain seed algo=nope", "algo"),
    ("explain seed nope", "nope"),
    ("list nope", "nope"),
    ("list algo nope", "nope"),
    ("list --all", "--all"),
    ("serve", "reward"),
    ("serve reward=nope", "reward"),
    ("serve reward=shapes port=70000", "port"),
    ("serve reward=shapes port=http", "port"),
    ("serve reward=shapes port=-1", "port"),
    ("serve reward=shapes prot=80", "prot"),
    ("serve reward=shapes queue=0", "queue"),
    ("serve reward=shapes timeout=0", "timeout"),
    ("serve reward=shapes timeout=nan", "timeout"),
    ("serve reward=shapes timeout=inf", "timeout"),
    ("serve reward=shapes memory_mb=1", "memory_mb"),
    ("serve reward=shapes host=1.2.3.4.5", "host"),
    ("serve reward=shapes iterations=3", "iterations"),
    ("serve reward=shapes algo=grpo", "algo"),
    ("serve reward=shapes shapes", "shapes"),
    ("serve reward.blobs=nope", "reward.blobs"),
)


def on_no_run(rng: random.Random) -> Case:
    """A run folder that is none."""
    command, *rest = rng.choice(ON_RUN).split(" ")
    run = rng.choice(sorted(RUNS))
    shown = ascii(run)[1:-1]
    return Case("no run folder", (command, run, *rest), (shown, "iterations"), RUNS[run])


def wrong_flags(rng: random.Random) -> Case:
    """Flags that are missing, unknown, or have values that make no sense."""
    words, name = rng.choice(FLAGS)
    files = {"old/config.yaml": _whole(), **RUNS["file"]}
    return Case("arguments that make no sense", tuple(words.split(" ")), (name,), files)


@cache
def _whole() -> bytes:
    """The configuration of a run of three iterations, as this version writes it."""
    return plan_of("iterations=3").frozen().encode()


def unknown_key_explained(rng: random.Random) -> Case:
    """A key to explain that there isn't."""
    key = rng.choice(leaves(context(rng))).key
    parts = key.split(".")
    parts[-1] = misspelt(rng, parts[-1], [])
    wrong = rng.choice([".".join(parts) + "_", f"{key}.deeper", f"{key}.", f".{key}"])
    return Case("nothing to explain", ("explain", wrong), (wrong, wrong.rstrip("."), "explain"))


def unknown_group_listed(rng: random.Random) -> Case:
    """A group to list that there isn't."""
    wrong = misspelt(rng, rng.choice([*GROUPS]), GROUPS)
    return Case("nothing to list", ("list", wrong), (wrong,))
