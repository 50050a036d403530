"""The command `rlfactory`: parses, plans, hands over, prints."""

import gc
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rlfactory import __version__
from rlfactory.problems import PlanError, Problem, closest, key_of, report
from rlfactory.ranks import follows, is_quiet
from rlfactory.settings import GROUPS

if TYPE_CHECKING:
    from rlfactory._hydra import Composed
    from rlfactory.plan import Plan

FLAGGED = ("resume", "sample", "inspect", "export")  # flags, not overrides; see on_run.py
FORCE, TAKE_OVER = "--force", "--take-over"
HYDRA_FLAGS = {"-m", "--multirun", "-c", "--cfg", "-i", "--info", "-sc", "--shell-completion"}


def main() -> None:
    """The console script."""
    gc.set_threshold(500_000)  # a plan makes much and drops little: collecting took a fifth of it
    try:
        code = dispatch(sys.argv[1:])
        sys.stdout.flush()
    except PlanError as error:
        if not is_quiet(sys.argv):
            print(report(error.problems, sys.argv[1:]), file=sys.stderr)
        code = 2
    except BrokenPipeError:
        # whoever read us has gone; python would complain again when it closes stdout
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


def dispatch(argv: Sequence[str]) -> int:
    """Run a subcommand, or train."""
    from rlfactory.request import prepare
    from rlfactory.targets import import_from_here

    import_from_here()
    subcommands: dict[str, Callable[[Sequence[str]], int]] = {
        "check": check,
        "list": list_options,
        "evaluate": _evaluate,
        "explain": explain_key,
        "serve": _serve,
        "sweep": _sweep,
        "sync": _sync,
    }
    command = argv[0] if argv else ""
    asks_for_help = command in subcommands and {"-h", "--help"} & {*argv}
    if command in ("-h", "--help", "help") or asks_for_help:
        from rlfactory.help import show_help

        return show_help()
    if command == "--version":
        print(__version__)
        return 0
    if command in ("report", "compare"):
        from rlfactory.report import command as told

        return int(getattr(told, command)(argv[1:]))
    if command in FLAGGED:
        from rlfactory import on_run

        return int(getattr(on_run, command)(argv[1:]))
    words = prepare([word for word in argv if word not in (FORCE, TAKE_OVER)])
    command = words[0] if words else ""
    if command in subcommands:
        return subcommands[command](words[1:])
    if any(word.split("=")[0] in HYDRA_FLAGS for word in words):
        if {"-m", "--multirun"} & {*words}:
            _refuse_words([word for word in words if not word.startswith("-")])
        from rlfactory.multirun import hydra_command

        return hydra_command(words, lambda composed: start(_checked(composed), argv))
    return train(words, argv)


def train(overrides: Sequence[str], typed: Sequence[str]) -> int:
    """Plan, make the run folder or go on in it, run."""
    _refuse_words(overrides)
    return start(_plan(overrides), typed)


def start(plan: "Plan", typed: Sequence[str]) -> int:
    """Print a plan, make its run folder and train; the folder remembers what was `typed`.

    Where a run of the same plan has begun in that folder, it goes on.
    """
    from rlfactory.launch import Sitting, require_possible, sit
    from rlfactory.on_run import silence_notices
    from rlfactory.resume import begun_in, go_on
    from rlfactory.run.atomic import write_text
    from rlfactory.run.folder import RunFolder, RunFolderError

    if follows(plan.config["hardware"]):
        return _follow(plan, FORCE in typed)
    require_possible(plan.config)
    if (frozen := begun_in(plan)) is not None:
        silence_notices()
        return go_on(plan, frozen, FORCE in typed, TAKE_OVER in typed)
    try:
        folder = RunFolder.create(plan.run_dir)
        folder.plan.write_text(plan.table(), encoding="utf-8")
        folder.command.write_text(f"{shlex.join(['rlfactory', *typed])}\n", encoding="utf-8")
        write_text(folder.config, plan.frozen())  # the last, for with it a run has begun
    except (RunFolderError, OSError) as error:
        raise _unusable(error) from error
    print(plan.table(color=sys.stdout.isatty()), flush=True)
    silence_notices()
    return sit(Sitting(plan.run_dir), plan.config)


def _follow(plan: "Plan", force: bool) -> int:
    """Train as another process of this command says, which a launcher has started as well."""
    import yaml

    from rlfactory.following import follow
    from rlfactory.on_run import silence_notices

    silence_notices()
    return follow(None, yaml.safe_load(plan.frozen()), force=force)


def check(overrides: Sequence[str]) -> int:
    """Plan only."""
    from rlfactory.resume import begun_in, require_same
    from rlfactory.run.folder import RunFolderError, require_unused

    _refuse_words(overrides)
    plan = _plan(overrides)
    try:
        if (frozen := begun_in(plan)) is not None:
            require_same(plan, frozen)
        else:
            require_unused(plan.run_dir)
    except RunFolderError as error:
        raise _unusable(error) from error
    print(plan.table(color=sys.stdout.isatty()))
    return 0


def list_options(words: Sequence[str]) -> int:
    """The groups, or one group's options."""
    from rlfactory.listing import describe_options
    from rlfactory.request import searched

    groups = [w for w in words if "=" not in w] or list(GROUPS)
    if groups == ["sweeps"]:
        return _sweep([])
    for group in groups:
        found = describe_options(group, searched(words))
        print(f"{group}: {GROUPS[group]}")
        for name, line in found.items():
            print(f"  {name:<20} {line}")
    return 0


def _evaluate(words: Sequence[str]) -> int:
    from rlfactory.on_run import evaluate

    return evaluate(words)


def _serve(words: Sequence[str]) -> int:
    from rlfactory.serve.command import serve

    return serve(words)


def _sweep(words: Sequence[str]) -> int:
    from rlfactory.sweep.command import sweep

    return sweep(words)


def _sync(words: Sequence[str]) -> int:
    from rlfactory.on_run import sync

    return sync(words)


def explain_key(words: Sequence[str]) -> int:
    """Print where a value comes from."""
    if not words or "=" in words[0]:
        raise PlanError([Problem("KEY", "no key named", "rlfactory explain optimizer.lr")])
    from rlfactory.explain import explain

    value, origins = explain(words[0], words[1:])
    print(f"{words[0]} = {value}")
    for number, origin in enumerate(origins, start=1):
        last = "  <- counts" if number == len(origins) else ""
        print(f"  {origin.value:<12} {origin.place}{last}")
    return 0


def _unusable(error: Exception) -> PlanError:
    return PlanError([Problem("run_dir", str(error).removeprefix("run_dir: "))])


def _plan(overrides: Sequence[str]) -> "Plan":
    from rlfactory.request import compose_request

    composed = compose_request(overrides)
    try:
        return _checked(composed)
    except PlanError as error:
        raise PlanError(_placed(error.problems, composed.overrides)) from error


def _checked(composed: "Composed") -> "Plan":
    from rlfactory.plan import make_plan

    return make_plan(composed.values, composed.choices, composed.problems)


def _placed(problems: Sequence[Problem], overrides: Sequence[str]) -> list[Problem]:
    """Problems with the file and line that set the key, where no override did."""
    from rlfactory.explain import file_of

    typed = {key_of(word) for word in sys.argv[1:]} | {key_of(o) for o in overrides}
    places = {p.key: file_of(p.key, overrides) for p in problems if p.key not in typed}
    return [
        replace(p, message=f"{p.message} (set in {place})") if (place := places.get(p.key)) else p
        for p in problems
    ]


def _refuse_words(overrides: Sequence[str]) -> None:
    """A word without `=` is a misspelt subcommand or flag."""
    commands = [
        "check",
        "list",
        "explain",
        "resume",
        "sample",
        "evaluate",
        "report",
        "compare",
        "inspect",
        "export",
        "serve",
        "sweep",
        "sync",
        "--help",
        "--version",
    ]
    for word in overrides:
        if "=" not in word and not word.startswith("~"):
            guess = closest(word, commands)
            remedy = f"rlfactory {guess or '--help'}"
            raise PlanError([Problem(word, "is neither a command nor KEY=VALUE", remedy)])


if __name__ == "__main__":
    main()
