"""The commands that take a run folder: resume, verify, sample, inspect, export, evaluate, sync."""

import argparse
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlfactory.cli.arguments import DECODING_KEYS, EVALUATION_KEYS, parsed
from rlfactory.cli.flags import FORCE
from rlfactory.config.problems import PlanError, Problem, override_key
from rlfactory.hardware.portable import use_portable_kernels
from rlfactory.hardware.process_environment import is_non_main
from rlfactory.run.folder import RunFolder
from rlfactory.run.inputs import remember, with_inputs
from rlfactory.train.process.begun_code import remember_code, untrusted_code
from rlfactory.utils.console import silence_notices
from rlfactory.utils.data_files import FileError
from rlfactory.utils.dotted_keys import absolute, file_of, path_values
from rlfactory.utils.live_objects import live_objects, references_in
from rlfactory.utils.text import is_override, typed_path

LAYOUT = ("micro_batch", "sample_batch", "hardware")
HUB_ID = re.compile(r"(zoo:[\w-]+|[\w-][\w.-]*/[\w.-]+)")


def sample(words: Sequence[str]) -> int:
    """Generate samples with a run's weights."""
    a, config, moved = _of_run("sample", words)
    if a.prompt:
        prompts = _with_pictures(a.prompt, a.image)
    else:
        prompts = _texts_of(a.prompts, config["prompts"].get("column", "prompt"))
    silence_notices()
    from rlfactory.tools.sample import SamplingOptions
    from rlfactory.tools.sample import sample as run_sample

    weights = a.weights or config["evaluation"]["weights"]
    options = SamplingOptions(a.steps, a.size, a.guidance, a.temperature)
    run_sample(a.run, prompts, a.count, a.seed, a.out, weights, a.best, options, moved)
    return 0


def _of_run(
    command: str, words: Sequence[str]
) -> tuple[argparse.Namespace, Mapping[str, Any], dict[str, str]]:
    """The flags of a command on a run, the run's configuration, and its paths that were moved."""
    a = parsed(command, words)
    if command == "export" and a.push is None:
        if a.to is None:
            message = "where to? --to FOLDER, --push USER/NAME for the Hugging Face hub, or both"
            to = ["--to", f"{a.run.name}-export".lstrip("-")]
            typed = shlex.join(["rlfactory", "export", str(a.run), *to])
            raise PlanError([Problem("--to", f"{message}; type {typed}")])
        if a.private:
            raise PlanError([Problem("--private", "goes with --push USER/NAME")])
    config = require_run(a.run)
    return a, config, relocations(a.run, a.overrides, config)


def _with_pictures(prompts: Sequence[str], paths: Sequence[Path] | None) -> Sequence[str]:
    if not paths:
        return prompts
    if len(paths) != len(prompts):
        message = f"there are {len(paths)} pictures for {len(prompts)} prompts; give each one"
        raise PlanError([Problem("--image", message)])
    from rlfactory.prompts.ops.pictured import pictured

    try:
        return [pictured(text, path) for text, path in zip(prompts, paths, strict=True)]
    except ValueError as error:
        raise PlanError([Problem("--image", str(error))]) from error


def _texts_of(file: Path, column: str) -> Sequence[str]:
    """The prompts of a file, under the run's `column` if it has that."""
    from rlfactory.prompts.base import PromptError
    from rlfactory.prompts.file import read_prompts
    from rlfactory.prompts.ops.data_rows import data_rows

    try:
        has_it = any(column in row for _, row in data_rows(file))
        return [p.text for p in read_prompts(file, column=column if has_it else "prompt")]
    except PromptError as error:
        raise PlanError([Problem("--prompts", str(error))]) from error


def verify(words: Sequence[str]) -> int:
    """Train a stretch of a run again, and compare it bit by bit."""
    from rlfactory.train.process.launch import require_possible

    a, config, moved = _of_run("verify", words)
    if a.published:
        from rlfactory.tools.published import compare_published

        return compare_published(a.run, config)
    again = _in_layout(config, a.layout) if a.layout else config
    require_possible(again)
    silence_notices()
    from rlfactory.tools.verify import verify as run_verify

    return run_verify(a.run, config, a.iteration, moved, again)


def _in_layout(config: Mapping[str, Any], words: Sequence[str]) -> Mapping[str, Any]:
    """The configuration of a run with other batches or hardware, but for the run's `tile`."""
    from rlfactory.config.overrides import override_frozen, plan_composed

    if other := [w for w in words if override_key(w).partition(".")[0] not in LAYOUT]:
        message = f"{other[0]} is no layout; allowed are {', '.join(LAYOUT)} and hardware.KEY"
        raise PlanError([Problem("--layout", message)])
    tile = config["hardware"].get("tile")
    kept = [] if tile is None else [f"hardware.tile={tile}"]
    return plan_composed(override_frozen(config, [*kept, *words])).config


def inspect(words: Sequence[str]) -> int:
    """Analyse a run's language model with TransformerLens."""
    a, config, moved = _of_run("inspect", words)
    weights = a.weights or config["evaluation"]["weights"]
    silence_notices()
    from rlfactory.tools.inspect.command import inspect as run_inspect

    run_inspect(a.run, weights, a.prompts, a.best, moved)
    return 0


def export(words: Sequence[str]) -> int:
    """Write a run's weights for other libraries."""
    a, config, moved = _of_run("export", words)
    weights = a.weights or config["evaluation"]["weights"]
    silence_notices()
    from rlfactory.tools.export.command import ExportOptions
    from rlfactory.tools.export.command import export as run_export
    from rlfactory.tools.export.upload import Upload

    options = ExportOptions(weights, a.merge, a.format == "comfyui", a.push)
    upload = Upload(a.push, a.private, a.run, a.to) if a.push else None
    run_export(a.run, a.to, options, a.best, moved, upload)
    return 0


def reward_model(words: Sequence[str]) -> int:
    """Train a reward model on pairs of completions."""
    a = parsed("reward-model", words)
    silence_notices()
    from rlfactory.tools.train_reward_model import RewardModelOptions
    from rlfactory.tools.train_reward_model import reward_model as run_reward_model

    options = RewardModelOptions(a.epochs, a.lr, a.batch, a.micro_batch, a.seed)
    run_reward_model(a.base, a.pairs, a.to, a.held_out, options)
    return 0


def import_config(words: Sequence[str]) -> int:
    """Print the command that is equivalent to a configuration file of another library."""
    from rlfactory.config.peers.files import kinds, translate_file

    a = parsed("import", words, kinds=kinds())
    print(translate_file(a.file, a.gpus).text(a.file))
    return 0


def evaluate(words: Sequence[str]) -> int:
    """Evaluate a run's weights; overrides of EVALUATION_KEYS change how."""
    best, words = "--best" in words, [word for word in words if word != "--best"]
    if not words or is_override(words[0]):
        raise PlanError([Problem("RUN", "no run folder named; type rlfactory evaluate RUN")])
    from rlfactory.config.evaluation_prompts import takes_all
    from rlfactory.config.overrides import override_frozen, plan_composed
    from rlfactory.config.words import SEARCHPATH

    run, overrides = typed_path(words[0]), _without_trust(words[1:])
    frozen = require_run(run)
    paths = path_values(frozen["model"], "model.")
    moved = [word for word in overrides if override_key(word) in paths]
    overrides = [_greedy(word, frozen) for word in overrides if word not in moved]
    allowed = ", ".join([*EVALUATION_KEYS, *DECODING_KEYS, "model.path"])
    message = f"can't be changed in an evaluation; allowed are {allowed}"
    typed = [key for word in overrides if (key := override_key(word)) != SEARCHPATH]
    if refused := [key for key in typed if not _in_evaluation(key)]:
        raise PlanError([Problem(key, message) for key in refused])
    located = with_inputs(frozen, RunFolder(run), relocations(run, moved, frozen))
    composed = override_frozen(located, overrides)
    composed = override_frozen(located, takes_all(overrides, located, composed.values))
    try:
        plan = plan_composed(composed)
    except PlanError as error:  # a fix that is refused here is none
        raise PlanError(
            p if _in_evaluation(override_key(p.fix)) or "=" not in p.fix else replace(p, fix="")
            for p in error.problems
        ) from None
    silence_notices()
    from rlfactory.tools.restore import evaluate as run_evaluate

    run_evaluate(run, plan.config, best)
    return 0


def _in_evaluation(key: str) -> bool:
    return key in DECODING_KEYS or key.split(".")[0] in EVALUATION_KEYS


def _greedy(word: str, frozen: Mapping[str, Any]) -> str:
    """A word of an evaluation; a temperature of 0 takes the most likely token."""
    key, _, value = word.partition("=")
    is_tokens = key == "dynamics.temperature" and "temperature" in frozen["dynamics"]
    is_zero = is_tokens and re.fullmatch(r"0*\.?0*", value) and value
    return "dynamics.top_k=1" if is_zero else word


def _without_trust(words: Iterable[str]) -> list[str]:
    """Words without `trust=[...]`, which has been read before any command."""
    return [word for word in words if override_key(word) != "trust"]


def sync(words: Sequence[str]) -> int:
    """Replay everything that run folders recorded to a logger, from the beginning."""
    from rlfactory.cli.resume import require_unlocked
    from rlfactory.tools.sync import chosen_logger, replay_to_logger

    runs = [word for word in words if not is_override(word)]
    overrides = _without_trust(word for word in words if is_override(word))
    if not runs:
        raise PlanError([Problem("RUN", "no run folder named; type rlfactory sync RUN")])
    configs = {}
    for run in map(typed_path, runs):
        frozen = require_run(run, needs_objects=False)
        with live_objects(dict.fromkeys(references_in(frozen))):
            configs[run] = chosen_logger(frozen, overrides)
        require_unlocked(run, take_over=False)
        if not RunFolder(run).metrics.is_file():
            raise PlanError([Problem(str(run), "has no metrics.jsonl yet")])
    silence_notices()
    return max([replay_to_logger(run, config) for run, config in configs.items()])


def resume(words: Sequence[str]) -> int:
    """Resume a run from its newest checkpoint."""
    from rlfactory.cli.resume import require_unlocked
    from rlfactory.tools.extend import extended, is_done, write_iterations
    from rlfactory.train.process.launch import require_possible, run_or_launch
    from rlfactory.train.process.run_arguments import RunArguments

    a = parsed("resume", words)
    frozen = require_run(a.run)
    words = [word for word in a.overrides if override_key(word) != "iterations"]
    moved, former = relocations(a.run, words, frozen), frozen["iterations"]
    if (iterations := _iterations(a.overrides, a.until, former)) != former:
        command = ["rlfactory", "resume", str(a.run), *words, "--until", str(iterations), FORCE]
        options = {"forcing": FORCE, "command": shlex.join(command)}
        frozen = extended(a.run, frozen, iterations, force=a.force, **options)
        a.until = None
    silence_notices()
    if is_non_main(frozen["hardware"]):
        from rlfactory.train.process.worker import run_non_main_process

        return run_non_main_process(a.run, frozen, a.until, a.force)
    if iterations == former and is_done(a.run, frozen) and not a.force:
        return 0
    require_unlocked(a.run, a.take_over)
    require_possible(frozen)
    if moved:
        remember(RunFolder(a.run), moved)
        remember_code(RunFolder(a.run), frozen)
    if iterations != former:
        write_iterations(a.run, iterations)
    return run_or_launch(RunArguments(a.run, a.until, a.force, a.take_over), frozen)


def _iterations(words: Sequence[str], until: int | None, former: int) -> int:
    """The number of iterations that a run is resumed with, by `iterations=N` or `--until N`."""
    typed = [word.partition("=")[2] for word in words if override_key(word) == "iterations"]
    if not typed:
        return former if until is None else max(until, former)
    if not typed[-1].isdecimal() or int(typed[-1]) < 1:
        message = f"is {typed[-1]}; allowed is a whole number >= 1"
        raise PlanError([Problem("iterations", message)])
    return int(typed[-1])


def require_run(run: Path, *, needs_objects: bool = True) -> Mapping[str, Any]:
    """A run folder's configuration, upgraded to this version; PlanError if none can be used, or a
    command `needs_objects` that the run had in memory.
    """
    from rlfactory.config.frozen import frozen_file_problems, read_frozen

    path = run / "config.yaml"
    if not os.path.isfile(path):  # also False for names that are too long
        what = "it holds no config.yaml; `rlfactory run_dir=FOLDER` makes one"
        if os.path.isfile(run / "rlfactory.yaml"):
            what = "it is an export, and the code in its README.md samples from it"
        if run.parent.name == "checkpoints":
            whole = run.parents[1]
            what = f"it is a checkpoint; {whole} takes the newest, and with --best the best one"
        raise PlanError([Problem(str(run), f"is no run folder: {what}")])
    try:
        frozen = read_frozen(path)
    except FileError as error:
        raise PlanError([Problem(str(path), error.told)]) from error
    if (names := references_in(frozen)) and needs_objects:
        message = (
            f"was started from Python with {', '.join(names)} in memory; there"
            " rlfactory.load_run takes them, and resumes, samples and exports"
        )
        raise PlanError([Problem(str(run), message)])
    with live_objects(dict.fromkeys(names)):
        problems = frozen_file_problems(frozen) or untrusted_code(RunFolder(run), frozen)
    if problems:
        raise PlanError([Problem(f"{path}: {p.key}", p.message) for p in problems])
    use_portable_kernels(frozen["hardware"])  # before anything imports torch
    return frozen


def relocations(run: Path, words: Sequence[str], config: Mapping[str, Any]) -> dict[str, str]:
    """The paths by key that `KEY=PATH` words give, absolute where they are on this disk.

    Raises:
        PlanError: a word is no path of the run's configuration, or names nothing; or the run's
            model is gone, and no word says where it is.
    """
    known = path_values(config)
    moved, problems = {}, []
    for word in _without_trust(words):
        key, mark, value = word.partition("=")
        if not mark or key not in known:
            message = "is no path of this run"
            problems.append(Problem(key, f"{message}; what can be typed is {', '.join(known)}"))
        elif not os.path.exists(file_of(key, value)) and not HUB_ID.fullmatch(value):
            problems.append(Problem(key, f"{value} does not exist"))
        else:
            moved[key] = absolute(key, str(Path(value).expanduser()))
    located = with_inputs(config, RunFolder(run), moved)
    for key, value in path_values(located["model"], "model.").items():
        if os.path.isabs(value) and not os.path.exists(value) and key not in moved:
            problems.append(Problem(key, f"{value} is gone; type {key}=FOLDER, where it is now"))
    if problems:
        raise PlanError(problems)
    return moved
