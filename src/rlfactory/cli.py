"""The command `rlfactory`: parses, plans, hands over, prints."""

import argparse
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlfactory import __version__
from rlfactory.problems import PlanError, Problem
from rlfactory.settings import GROUPS

if TYPE_CHECKING:
    from rlfactory._hydra import Composed
    from rlfactory.plan import Plan

HYDRA_FLAGS = {"-m", "--multirun", "-c", "--cfg", "-i", "--info", "-sc", "--shell-completion"}
EVALUATED = ("evaluation.", "seed", "sample_batch", "reward", "prompts", "hardware", "schedule")


def main() -> None:
    """The console script."""
    try:
        code = dispatch(sys.argv[1:])
        sys.stdout.flush()
    except PlanError as error:
        print("\n".join(f"error: {problem}" for problem in error.problems), file=sys.stderr)
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
    from rlfactory.targets import import_from_here

    import_from_here()
    argv = _folders_as_overrides(argv)
    command = argv[0] if argv else ""
    if command in ("-h", "--help", "help"):
        return show_help()
    if command == "--version":
        print(__version__)
        return 0
    if any(word.split("=")[0] in HYDRA_FLAGS for word in argv):
        return multirun(argv)
    subcommands: dict[str, Callable[[Sequence[str]], int]] = {
        "check": check,
        "list": list_options,
        "sample": sample,
        "evaluate": evaluate,
        "explain": explain_key,
    }
    if command in subcommands:
        return subcommands[command](argv[1:])
    return train(argv)


def _folders_as_overrides(argv: Sequence[str]) -> list[str]:
    """Hydra's `-cd FOLDER` as the override that it stands for."""
    words, folders = list(argv), []
    while found := next((w for w in words if w in ("-cd", "--config-dir")), None):
        place = words.index(found)
        if place + 1 == len(words):
            raise PlanError([Problem(found, "names no folder", f"rlfactory {found} FOLDER")])
        folders.append(f"file://{Path(words[place + 1]).resolve()}")
        del words[place : place + 2]
    return [*words, f"hydra.searchpath=[{','.join(folders)}]"] if folders else words


def train(overrides: Sequence[str]) -> int:
    """Plan, make the run folder, run."""
    _refuse_words(overrides)
    return start(_plan(overrides))


def start(plan: "Plan") -> int:
    """Print a plan, make its run folder and train."""
    from rlfactory.run.folder import RunFolder, RunFolderError

    try:
        folder = RunFolder.create(plan.run_dir)
        folder.config.write_text(plan.frozen(), encoding="utf-8")
        folder.plan.write_text(_render(plan, color=False), encoding="utf-8")
    except (RunFolderError, OSError) as error:
        raise PlanError([Problem("run_dir", str(error))]) from error
    print(_render(plan, color=sys.stdout.isatty()), flush=True)
    from rlfactory import worker

    return worker.run(plan.run_dir)


def check(overrides: Sequence[str]) -> int:
    """Plan only."""
    _refuse_words(overrides)
    print(_render(_plan(overrides, "rlfactory check"), color=sys.stdout.isatty()))
    return 0


def list_options(words: Sequence[str]) -> int:
    """The groups, or one group's options."""
    from rlfactory.listing import describe_options

    groups = [w for w in words if "=" not in w] or list(GROUPS)
    searched = [w for w in words if w.startswith("hydra.searchpath")]
    for group in groups:
        found = describe_options(group, searched)
        print(f"{group}: {GROUPS[group]}")
        for name, line in found.items():
            print(f"  {name:<20} {line}")
    return 0


def sample(words: Sequence[str]) -> int:
    """Draw pictures with a run's weights."""
    parser = argparse.ArgumentParser(prog="rlfactory sample", description=sample.__doc__)
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument("--prompt", action="append", required=True, help="may be given again")
    parser.add_argument("--count", type=int, default=1, help="pictures of each prompt")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="a folder; default RUN/samples/drawn")
    parser.add_argument("--weights", choices=["ema", "policy", "reference"], default="ema")
    a = parser.parse_args(words)
    _require_run(a.run)
    if a.count < 1:
        raise PlanError([Problem("--count", f"is {a.count}; allowed are 1 or more")])
    from rlfactory import worker

    return worker.sample(a.run, a.prompt, a.count, a.seed, a.out, a.weights)


def evaluate(words: Sequence[str]) -> int:
    """Evaluate a run's weights, with other settings where overrides say so."""
    if not words or "=" in words[0]:
        raise PlanError([Problem("RUN", "no run folder named", "rlfactory evaluate RUN")])
    run, overrides = Path(words[0]), list(words[1:])
    frozen = _require_run(run)
    refused = [o for o in overrides if not o.lstrip("+").startswith(EVALUATED)]
    if refused:
        allowed = ", ".join(name.rstrip(".") for name in EVALUATED)
        raise PlanError(
            [
                Problem(o, f"can't be changed in an evaluation; allowed are {allowed}")
                for o in refused
            ]
        )
    from rlfactory.request import amend

    plan = _checked(amend(frozen, overrides), "rlfactory evaluate")
    from rlfactory import worker

    return worker.evaluate(run, plan.config)


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


def multirun(argv: Sequence[str]) -> int:
    """Hydra's own command line; each job of a multirun gets a run folder of its own."""
    from rlfactory import _hydra

    failed: list[str] = []

    def job(composed: "Composed", overrides: list[str], sweep: Path) -> None:
        name = re.sub(r"[^\w=.,+-]+", "_", ",".join(overrides)) or "default"
        composed.values["run_dir"] = str(sweep / name)
        try:
            code = start(_checked(composed, "rlfactory"))
        except PlanError as error:
            print("\n".join(f"error: {problem}" for problem in error.problems), file=sys.stderr)
            code = 2
        if code:
            failed.append(f"{name} (exit code {code})")

    _hydra.main(job, argv)
    if failed:
        print("failed: " + ", ".join(failed), file=sys.stderr)
    return 1 if failed else 0


def show_help() -> int:
    """One line a group, and how to begin."""
    from rlfactory._hydra import options

    print("rlfactory: reinforcement learning for image generators and language models\n")
    print("  rlfactory [GROUP=OPTION ...] [KEY=VALUE ...]   train")
    print("  rlfactory check|list|explain|sample|evaluate   see below; -m for a multirun\n")
    for group, question in GROUPS.items():
        print(f"  {group:<12} {question}: {', '.join(options(group))}")
    print("\nexamples")
    print("  rlfactory                                      train the default on this machine")
    print("  rlfactory algo=grpo reward=compressibility     choose; companions follow")
    print("  rlfactory -m algo=grpo,nft seed=0,1            four runs, one after another")
    print("\n  rlfactory check [OVERRIDES]                    the plan alone")
    print("  rlfactory list [GROUP]                         options, a line each")
    print("  rlfactory explain KEY [OVERRIDES]              where a value comes from")
    print("  rlfactory sample RUN --prompt TEXT             pictures with a run's weights")
    print("  rlfactory evaluate RUN [OVERRIDES]             scores of a run's weights")
    print("  rlfactory --cfg job [OVERRIDES]                the whole configuration")
    print('  eval "$(rlfactory -sc install=bash)"           completion; zsh and fish too')
    return 0


def _plan(overrides: Sequence[str], command: str = "rlfactory") -> "Plan":
    from rlfactory.request import compose_request

    return _checked(compose_request(overrides, command), command)


def _checked(composed: "Composed", command: str) -> "Plan":
    from rlfactory.plan import make_plan

    return make_plan(composed.values, composed.choices, command)


def _refuse_words(overrides: Sequence[str]) -> None:
    """A word without `=` is a misspelt subcommand or flag."""
    commands = ["check", "list", "explain", "sample", "evaluate", "--help", "--version"]
    for word in overrides:
        if "=" not in word and not word.startswith("~"):
            from rlfactory.problems import closest

            guess = closest(word, commands)
            remedy = f"rlfactory {guess}" if guess else "rlfactory --help"
            raise PlanError([Problem(word, "is neither a command nor KEY=VALUE", remedy)])


def _require_run(run: Path) -> Mapping[str, Any]:
    import yaml

    path = run / "config.yaml"
    if not path.is_file():
        message = "is no run folder: it holds no config.yaml"
        raise PlanError([Problem(str(run), message, "rlfactory, which makes one")])
    frozen: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return frozen


def _render(plan: "Plan", *, color: bool) -> str:
    """A plan as a small table."""
    import io

    from rich.console import Console
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for group in GROUPS:
        if group in plan.choices:
            table.add_row(group, plan.choices[group], style="bold" if group == "algo" else "")
    for name, text in plan.derived.items():
        table.add_row(name, text, style="dim")
    table.add_row("run folder", str(plan.run_dir))
    stream = io.StringIO()
    Console(file=stream, force_terminal=color, width=110, highlight=False).print(table)
    return stream.getvalue().rstrip()


if __name__ == "__main__":
    main()
