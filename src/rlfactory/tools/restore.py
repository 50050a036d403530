"""Restores a finished run's weights from a checkpoint, for the commands that use them."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from rlfactory.config.memory.devices import is_out_of_memory
from rlfactory.config.memory.peak_memory import explain_out_of_memory
from rlfactory.model.weight_sets import REFERENCE
from rlfactory.report.summary import mean_sections
from rlfactory.report.text_table import Terminal
from rlfactory.run.checkpoint.checksums import DamagedError, verify
from rlfactory.run.checkpoint.find import best_step, checkpoint_of, newest, reading
from rlfactory.run.checkpoint.load import load_checkpoint, load_initial_weights
from rlfactory.run.disk_errors import OF_DISK, explain_disk_errors
from rlfactory.run.folder import RunFolder, RunFolderError, try_to_write
from rlfactory.run.inputs import with_inputs
from rlfactory.train.build import build
from rlfactory.train.components import Components, NoProgress
from rlfactory.train.evaluation.build import build_evaluator
from rlfactory.train.evaluation.evaluation_schedule import EvaluationFiles
from rlfactory.train.evaluation.evaluator import Evaluator
from rlfactory.train.process.ranks import single_process_config
from rlfactory.train.process.worker import read_config
from rlfactory.utils.dotted_keys import Config
from rlfactory.utils.errors import UserError

OWN_ENGINE = {"_target_": "rlfactory.engine.own.Own"}


def located_config(path: Path, moved: Mapping[str, str] | None = None) -> Config:
    """The configuration of a run folder, with the paths at which its model and files are now;
    `moved` are further ones, by key.
    """
    folder = RunFolder(path)
    return with_inputs(read_config(folder), folder, moved)


@contextmanager
def restored_run(
    path: Path, config: Config, best: bool, *sets: str
) -> Iterator[tuple[Components, Evaluator]]:
    """`restored_components` of a run's newest checkpoint, or of the best one.

    Raises:
        UserError: also where memory runs out in the block.
    """
    try:
        with found_checkpoint(path, best) as checkpoint:
            restored = restored_components(checkpoint, config, sets)
        yield restored
    except Exception as error:
        if is_out_of_memory(error):
            raise UserError(explain_out_of_memory(error, config)) from error
        raise


def restored_components(
    checkpoint: Path, config: Config, sets: Sequence[str]
) -> tuple[Components, Evaluator]:
    """A run's components with the weights of a checkpoint, and an evaluator; in one process.

    `sets` are weight sets that are needed, beside those that the configuration trains with.
    """
    # an engine is for rollouts: evaluations and samples are drawn by our own loop
    config = {**single_process_config(config), "engine": OWN_ENGINE}
    components = build(config)
    add_weight_sets(components.model, config, sets)
    load_checkpoint(checkpoint, components.model)
    return components, build_evaluator(config, components, NoProgress())


def add_weight_sets(model: Any, config: Config, names: Sequence[str]) -> None:
    """Keep weight sets, which a checkpoint then fills; a reference that it does not have is what
    the run started from.
    """
    begun = None if config.get("begin_as") == "merged" else config.get("begin_from")
    is_missing = REFERENCE in names and REFERENCE not in model.weights
    if begun and is_missing and config["reference_from"] == "start":
        load_initial_weights(Path(begun), model)
    for name in names:
        model.weights.add(name)


def find_checkpoint(path: Path, best: bool) -> Path:
    """The folder of a run's newest checkpoint, or of its best one; RunFolderError without one."""
    checkpoints = RunFolder(path).checkpoints
    if not best:
        if (checkpoint := newest(checkpoints)) is None:
            raise RunFolderError(f"{path} holds no checkpoint yet, or none that is undamaged")
        return checkpoint
    if (step := best_step(checkpoints)) is None:
        raise RunFolderError(f"{path} has kept no best checkpoint; leave out --best")
    try:
        verify(checkpoint := checkpoint_of(checkpoints, step))
    except DamagedError as error:
        raise RunFolderError(f"{checkpoint} is damaged: {error}; leave out --best") from error
    return checkpoint


@contextmanager
def found_checkpoint(path: Path, best: bool) -> Iterator[Path]:
    """`find_checkpoint`, which a process that trains the run removes no more within the block."""
    while True:
        checkpoint = find_checkpoint(path, best)
        with reading(checkpoint):
            if checkpoint.is_dir():
                yield checkpoint
                return


def evaluate(path: Path, config: Config, best: bool) -> None:
    """Evaluate a run's weights by a changed configuration; print the means with their intervals.

    Scores go to `evaluations/DATE.json` of the run folder, samples to `samples/DATE.*`: a run's own
    evaluations are named by their iteration.
    """
    folder, name = RunFolder(path), datetime.now().strftime("%Y-%m-%d_%H-%M-%S-%f")
    try:  # before what takes long
        folder.evaluations.mkdir(exist_ok=True)
        try_to_write(folder.evaluations)
    except OSError as error:
        reason = f"{folder.evaluations} can't be written ({error.strerror})"
        copy = f"cp -r {shlex.quote(str(path))} FOLDER && rlfactory evaluate FOLDER"
        raise RunFolderError(f"{reason}, and scores are kept there; type {copy}") from error
    with restored_run(path, config, best) as (_, evaluator):
        evaluation = evaluator(config["evaluation"]["weights"])
        evaluators, sets = {"": evaluator, **evaluator.sets}, {"": evaluation, **evaluation.sets}
        shown, count = [], config["evaluation"]["grid"]
        with explain_disk_errors(path, f"samples in {path}", resumes=False, numbers=OF_DISK):
            for of, own in sets.items():
                files = EvaluationFiles(folder.prompt_set(of), evaluators[of], count)
                shown.append(files.write(name, own))
        Terminal().sections(mean_sections({of: own.scores for of, own in sets.items()}))
        for file in filter(None, shown):
            print(f"samples: {file}")
