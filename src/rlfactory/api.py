"""The Python interface: `train`, `plan` and `load_run`, in the command's words.

    import rlfactory as rl

    run = rl.train("algo=vgrpo", model=pipe, reward=brightness, prompts=["a red cube"])
    run = rl.train("model=gpt2", model=lm, tokenizer=tok, reward=fn, prompts=dataset)
    print(rl.plan("algo=awm", "model=flux").table())

It composes and checks the same configuration as the command, writes the same run folder and trains
with the same engine, so the same choices give the same weights. A live object (a pipeline, a model,
a function, a list of prompts) stands in the configuration as `object:NAME`; `objects.json` in the
run folder describes it, and `Run.resume` asks for it again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlfactory.config.composites import is_function
from rlfactory.config.live import NAMES, LiveArguments, apply_live, live_options
from rlfactory.config.overrides import compose, plan_composed
from rlfactory.config.plan import Plan
from rlfactory.config.problems import PlanError, Problem
from rlfactory.config.words import normalise_words, typed_value
from rlfactory.hardware.portable import use_portable_kernels
from rlfactory.prompts.ops.in_memory import with_prompts
from rlfactory.run.folder import RunFolder
from rlfactory.tools.run import Run, live_of_run, require_same_prompts, required_listeners
from rlfactory.train.process.launch import require_possible
from rlfactory.utils.console import silenced_notices
from rlfactory.utils.current_folder import trust_names
from rlfactory.utils.errors import show_short_tracebacks
from rlfactory.utils.live_objects import describe, live_objects
from rlfactory.utils.processes import rare_collection

if TYPE_CHECKING:
    from rlfactory.train.listeners import Iteration, Listener

__all__ = ["PlanError", "Run", "load_run", "plan", "train"]

RENAMED = {
    **{"reward_funcs": "reward=", "train_dataset": "prompts=", "eval_dataset": "eval_prompts="},
    **{"processing_class": "tokenizer=", "callbacks": "listeners=", "pipeline": "model="},
    "args": "one keyword for each option, or a word such as 'optimizer.lr=1e-5',",
    "peft_config": "the words 'model.finetune=lora' and 'model.lora_rank=8'",
}
"""Keywords of TRL's trainers, and what they are here."""

show_short_tracebacks()


def plan(*words: str, **given: Any) -> Plan:
    """Check an experiment and return its plan, as `rlfactory check` does.

    Args:
        words: overrides as they are typed, `"algo=awm"`.
        given: what `train` takes by keyword.

    Returns:
        The plan; `table()` is its text, `config` all values.

    Raises:
        PlanError: the experiment can't run; the message has every problem with its fix.
    """
    arguments, typed = split_arguments(words, given)
    with live_objects(arguments.objects):
        return _planned(arguments, typed)


def train(
    *words: str,
    listeners: "Sequence[Listener | Callable[[Iteration], object]]" = (),
    until: int | None = None,
    force: bool = False,
    **given: Any,
) -> Run:
    """Train, as `rlfactory` does with the same words; returns the finished run.

    A run folder (`run_dir=...`) that holds an unfinished run of the same configuration is resumed;
    a finished one stays as it is, whatever its objects were.
    Ctrl-C, or interrupting a notebook's kernel, keeps what was learned: the run is returned with
    status `interrupted`. A notebook shows the progress, and at the end scores, curves and samples.

    Args:
        words: overrides as they are typed, `"algo=awm"`.
        listeners: called after each iteration and evaluation, see `rlfactory.train.listeners`; a
            function is called after each iteration.
        until: the iteration to pause after.
        force: resume under this configuration, if that of the run is another.
        given: live objects by name, and any other key of the configuration (`iterations=20`,
            `optimizer={"lr": 1e-4}`). Live objects are

            - model: a diffusers pipeline or a transformers causal LM; it is copied, not changed.
            - tokenizer: the tokenizer of a causal LM.
            - reward: a function (also async), a `Reward` or its class; or an option. Several are a
              list or a mapping by name, each alone or in a pair with its weight: a weighted sum.
            - prompts: texts, lists of messages, rows with a `prompt` or `messages`, a
              `datasets.Dataset`, `Prompts`; or an option.
            - eval_prompts: the same, for evaluation.
            - algo: a subclass of `Algorithm`, or an instance of one; or an option. `algo.NAME=...`
              sets what the class takes.
            - dynamics: a class of a sampler, a `Dynamics`, with its options likewise; or an option.

    Raises:
        PlanError: the experiment can't run; nothing was written.
        UserError: training can't go on; the message says what to change, and the run is kept.
    """
    arguments, typed = split_arguments(words, given)
    listeners = required_listeners(listeners)
    with live_objects(arguments.objects), silenced_notices(), rare_collection():
        planned = _planned(arguments, typed)
        _require_one_process(planned)
        require_possible(planned.config)
        use_portable_kernels(planned.config["hardware"])
        run = Run(planned.run_dir, arguments.objects)
        if _begin(planned, arguments, typed, force):
            from rlfactory.train.process.worker import train_in_python  # torch, silenced

            train_in_python(run.path, until, force, listeners)
    run.show()
    return run


def load_run(path: str | Path, **given: Any) -> Run:
    """A run by its folder; `given` are the live objects that it was started with, by name.

    Raises:
        PlanError: the folder holds no run.
    """
    if not RunFolder(Path(path)).config.is_file():
        raise PlanError([Problem(str(path), "is no run folder: it holds no config.yaml")])
    return Run(Path(path), live_of_run(given))


def split_arguments(
    words: Sequence[str], given: Mapping[str, Any]
) -> tuple[LiveArguments, list[str]]:
    """The live objects among the arguments, and all others as words of the command."""
    problems = [Problem(k, f"is {RENAMED[k]} here") for k in given if k in RENAMED]
    problems += [
        Problem(f"{word!r:.60}", "is no word; hand over words as *WORDS, settings as **SETTINGS")
        for word in words
        if not isinstance(word, str)
    ]
    if problems:
        raise PlanError(problems)
    arguments, settings = LiveArguments.of(with_prompts(given))
    return arguments, [*normalise_words(words), *as_words(settings)]


def as_words(settings: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Settings as overrides: `{"optimizer": {"lr": 1e-4}}` is `optimizer.lr=0.0001`.

    Raises:
        PlanError: a value is an object that no configuration can hold.
    """
    words: list[str] = []
    for key, value in settings.items():
        if isinstance(value, Mapping):
            words += as_words(value, f"{prefix}{key}.")
        elif not _is_plain(value):
            message = f"is a {type(value).__name__}; objects can be {', '.join(NAMES)}"
            raise PlanError([Problem(f"{prefix}{key}", message)])
        else:
            words.append(f"{prefix}{key}={typed_value(value)}")
    return words


def _is_plain(value: object) -> bool:
    """Whether a configuration can hold a value: text, numbers, paths, and lists of them."""
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return isinstance(value, str | bool | Real | Path | None)


def _planned(arguments: LiveArguments, typed: Sequence[str]) -> Plan:
    # what the caller names may run
    trust_names(r for r, _ in arguments.rewards.values() if is_function(r))
    options, problems = live_options(arguments, typed)
    composed = compose([*arguments.words(typed), *options])
    composed = replace(composed, problems=[*composed.problems, *problems])
    return plan_composed(apply_live(composed, arguments))


def _require_one_process(planned: Plan) -> None:
    """PlanError where several processes are wanted: they would not have this process's objects."""
    count = planned.config["hardware"].get("processes", 1)
    if count != 1:
        message = f"is {count}; Python trains in this process; the command starts several"
        raise PlanError([Problem("hardware.processes", message, "hardware=auto")])


def _begin(planned: Plan, arguments: LiveArguments, typed: Sequence[str], force: bool) -> bool:
    """Make the run folder, or find that of the same run; returns whether there is more to train."""
    from rlfactory.cli.resume import create_run, existing_config, replaces, resumable

    frozen = existing_config(planned)
    is_replaced = frozen is not None and replaces(planned, frozen)
    if frozen is not None and not is_replaced:
        if resumable(planned, frozen, force) is None:
            return False
        require_same_prompts(RunFolder(planned.run_dir), arguments.objects, force)
        return True
    described = {name: describe(value) for name, value in arguments.objects.items()}
    command = f"rlfactory.train({', '.join(map(repr, typed))})"
    create_run(planned, command, described, replace=is_replaced)
    return True
