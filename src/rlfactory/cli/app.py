"""The command `rlfactory`: dispatches subcommands, plans, and starts runs."""

import atexit
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from types import FrameType
from typing import TYPE_CHECKING

from rlfactory.cli.flags import (
    COMMANDS,
    COMPLETION_FLAGS,
    CONFIG_FLAGS,
    FORCE,
    FUNCTIONS,
    MULTIRUN_FLAGS,
    TAKE_OVER,
    WITH_FLAGS,
    WITH_WORDS,
    flag_problems,
    plain_words,
    refuse_config_files,
)
from rlfactory.config.problems import PlanError, Problem, closest, override_key, report
from rlfactory.config.schema.root import GROUPS
from rlfactory.hardware.portable import use_portable_kernels
from rlfactory.hardware.process_environment import is_non_main, is_quiet
from rlfactory.utils.console import guard_output, print_error, printable, shows_styles
from rlfactory.utils.current_folder import leave_current_folder, trust_names
from rlfactory.utils.errors import UserError, explained
from rlfactory.utils.processes import exit_at_once, rare_collection, signal_handlers
from rlfactory.utils.version import __version__

if TYPE_CHECKING:
    from rlfactory.config.plan import Plan


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, but within an import end the process: libraries turn the exception
    into a failure of their own there, and finalizers, of which imports run many, drop it.
    """
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            exit_at_once(128 + number)
        frame = frame.f_back
    raise KeyboardInterrupt


@rare_collection()
@signal_handlers(_interrupt, [signal.SIGINT])
def main() -> None:
    """The console script."""
    if os.environ.get("JPY_PARENT_PID"):
        # `!rlfactory` in a notebook: a pseudo-terminal, but the cell can't rewrite lines; for rich
        os.environ["TTY_COMPATIBLE"] = "0"
    try:
        leave_current_folder()
        guard_output()
        sys.argv[1:] = plain_words(sys.argv[1:])
        code = dispatch(sys.argv[1:])
        sys.stdout.flush()
    except PlanError as error:
        if not is_quiet(sys.argv):
            from rlfactory.cli.suggestions import working_command

            command = working_command(error.problems, sys.argv[1:])
            print(printable(report(error.problems, sys.argv[1:], command)), file=sys.stderr)
        code = 2
    except KeyboardInterrupt:
        code = 130
    except Exception as error:
        is_told = isinstance(error, UserError | OSError)
        told = error if is_told else explained(error)
        if told is error and not is_told:
            raise  # a defect of ours
        if not (isinstance(error, UserError) and is_quiet(sys.argv)):
            print_error(str(told))
        code = 1
    if "RANK" in os.environ or "SLURM_PROCID" in os.environ:
        exit_at_once(code)  # a rank that a launcher has started
    # what libraries do as the process ends would each print a traceback of one more Ctrl-C
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    sys.exit(code)


def dispatch(argv: Sequence[str]) -> int:
    """Run a subcommand, or train."""
    from rlfactory.config.user_code import names_in
    from rlfactory.config.words import normalise_words

    trust_names(names_in(argv))
    argv = plain_words(argv)
    command = argv[0] if argv else ""
    asks_for_help = command in WITH_WORDS and {"-h", "--help"} & {*argv}
    if command in ("-h", "--help", "help") or asks_for_help:
        from rlfactory.cli.arguments import show_help

        return show_help(argv[1] if command == "help" and argv[1:] else command)
    if command == "--version":
        print(__version__)
        return 0
    if command in WITH_FLAGS:
        return _call(argv)
    words = normalise_words([word for word in argv if word not in (FORCE, TAKE_OVER)])
    command = words[0] if words else ""
    if command in ("check", "estimate") or command not in WITH_WORDS:
        refuse_config_files(words)
        if problems := [*flag_problems(words)]:
            raise PlanError(problems)
    if command in WITH_WORDS:
        return _call(words)
    if COMPLETION_FLAGS & {*words}:
        from rlfactory.cli.suggestions import complete

        return complete(words)
    flags = (*CONFIG_FLAGS, *MULTIRUN_FLAGS)
    overrides = [word for word in words if word not in flags]
    if CONFIG_FLAGS & {*words}:
        return show_config([word for word in overrides if word != "job"])
    if MULTIRUN_FLAGS & {*words}:
        from rlfactory.cli.multirun import run_jobs

        _refuse_words(overrides)
        return run_jobs(overrides, lambda plan: start(plan, argv))
    return start(_plan(words), argv)


def _call(words: Sequence[str]) -> int:
    """A command's exit code; only its own module is imported."""
    command, *rest = words
    function = FUNCTIONS.get(command, command.replace("-", "_"))
    return int(getattr(import_module(COMMANDS[command]), function)(rest))


def start(plan: "Plan", typed: Sequence[str]) -> int:
    """Print a plan, make its run folder and train; `typed` is saved there as the command.

    If the folder has a run of the same plan, that run resumes.
    """
    from rlfactory.cli.resume import create_run, existing_config, replaces, resume_run
    from rlfactory.train.process.launch import require_possible, run_or_launch
    from rlfactory.train.process.run_arguments import RunArguments
    from rlfactory.utils.console import silence_notices

    use_portable_kernels(plan.config["hardware"])  # before anything imports torch
    if is_non_main(plan.config["hardware"]):  # a launcher has started the same command as rank 0
        from rlfactory.train.process.worker import run_non_main_process
        from rlfactory.utils.data_files import load_yaml

        silence_notices()
        return run_non_main_process(None, load_yaml(plan.frozen()), force=FORCE in typed)
    require_possible(plan.config)
    frozen = existing_config(plan)
    replace = frozen is not None and replaces(plan, frozen)
    if frozen is not None and not replace:
        silence_notices()
        return resume_run(plan, frozen, FORCE in typed, TAKE_OVER in typed)
    if replace:
        print(f"{plan.run_dir}: the run ended before its first checkpoint, and is replaced")
    create_run(plan, shlex.join(["rlfactory", *typed]), replace=replace)
    print(plan.table(color=shows_styles()), flush=True)
    silence_notices()
    return run_or_launch(RunArguments(plan.run_dir), plan.config)


def show_config(overrides: Sequence[str]) -> int:
    """Print the configuration, of `--cfg job`."""
    import yaml

    plan = _plan(overrides)
    print(yaml.safe_dump(plan.config, sort_keys=False, allow_unicode=True), end="")
    return 0


def check(overrides: Sequence[str]) -> int:
    """Print the plan only, of a multirun those of all jobs; PlanError if a run folder is in use."""
    from rlfactory.cli.resume import require_unlocked, require_usable

    if MULTIRUN_FLAGS & {*overrides}:
        from rlfactory.cli.multirun import describe_jobs, planned_jobs

        overrides = [word for word in overrides if word not in MULTIRUN_FLAGS]
        _refuse_words(overrides)
        print(describe_jobs(planned_jobs(overrides)))
        return 0
    plan = _plan(overrides)
    require_usable(plan)
    # an owner that can't be seen from here is asked about when the run is started
    require_unlocked(plan.run_dir, take_over=True)
    print(plan.table(color=shows_styles()))
    return 0


def estimate(overrides: Sequence[str]) -> int:
    """Print what a run takes, counted on fake tensors."""
    plan = _plan(overrides)
    from rlfactory.tools.estimate import show

    print(show(plan.config))
    return 0


def list_options(words: Sequence[str]) -> int:
    """Print the options of the named groups, or of all; of `GROUP OPTION`, the option itself."""
    from rlfactory.config.options import describe_options
    from rlfactory.config.words import searched

    groups = [w for w in words if "=" not in w] or list(GROUPS)
    if groups == ["sweeps"]:
        return _call(["sweep"])
    group, *names = groups
    if group in GROUPS and names and not {*names} & {*GROUPS}:
        from rlfactory.cli.explain import describe_option

        print("\n".join(describe_option(group, name, words) for name in names))
        return 0
    for group in groups:
        described = describe_options(group, searched(words))
        print(f"{group}: {GROUPS[group]}")
        for name, line in described.items():
            print(f"  {name:<20} {line}")
    return 0


def _plan(overrides: Sequence[str]) -> "Plan":
    """The plan; a problem has the file and line that set its key, unless an override did."""
    from rlfactory.config.overrides import compose, plan_composed

    _refuse_words(overrides)
    composed = compose(overrides)
    try:
        return plan_composed(composed)
    except PlanError as error:
        from rlfactory.cli.explain import defined_in

        typed = {override_key(word) for word in [*sys.argv[1:], *composed.overrides]}
        raise PlanError(
            replace(p, message=f"{p.message} (set in {place})")
            if p.key not in typed and (place := defined_in(p.key, composed))
            else p
            for p in error.problems
        ) from error


def _refuse_words(overrides: Sequence[str]) -> None:
    """Raise PlanError for a word without `=`: a misspelt subcommand or flag."""
    for word in overrides:
        if "=" not in word and not word.startswith("~"):
            guess = closest(word, [*COMMANDS, "--help", "--version"])
            fix = f"rlfactory {guess or '--help'}"
            if guess is not None and guess not in ("check", "list", "sweep", "--help", "--version"):
                fix += " --help"  # these need arguments
            raise PlanError([Problem(word, "is neither a command nor KEY=VALUE", fix)])


if __name__ == "__main__":
    main()
