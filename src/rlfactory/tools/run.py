"""A run as a Python object: its metrics and scores, samples of its weights, export, resuming."""

import gc
from collections.abc import Mapping, Sequence
from inspect import signature
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from rlfactory.config.frozen import read_frozen
from rlfactory.config.live import LiveArguments
from rlfactory.config.problems import PlanError, Problem
from rlfactory.model.pipelines.local_models import PIPELINE_INDEX, pipeline_of
from rlfactory.prompts.ops.chat import Message, as_prompt
from rlfactory.prompts.ops.in_memory import with_prompts
from rlfactory.run.folder import RunFolder, Status
from rlfactory.run.lock import require_free
from rlfactory.run.metrics import read
from rlfactory.run.scores import Scores
from rlfactory.tools.extend import extended, is_done, write_iterations
from rlfactory.utils.console import notebook_shell, show_html, silenced_notices
from rlfactory.utils.data_files import read_json
from rlfactory.utils.live_objects import live_objects, references_in

if TYPE_CHECKING:
    from rlfactory.rollout import GeneratedSamples
    from rlfactory.train.listeners import Listener


UNUSED = ("prompts", "reward")
"""Live objects that sampling and exporting do without."""


class Run:
    """A run folder, and the live objects that its configuration refers to, by name; none for a run
    that the command started.
    """

    def __init__(self, path: Path, objects: Mapping[str, Any] | None = None) -> None:
        self.path = path.absolute()
        self.folder = RunFolder(self.path)
        self._objects = dict(objects or {})
        self._shown_in: int | None = None

    @property
    @silenced_notices()
    def config(self) -> Mapping[str, Any]:
        """The frozen configuration."""
        from rlfactory.train.process.worker import read_config

        with live_objects(self._required({}, of_model=True)):
            return read_config(self.folder)

    @property
    def status(self) -> Status:
        """`done`, `interrupted`, `preempted`, `failed` or `running`."""
        return self.folder.read_status()

    @property
    def metrics(self) -> Any:
        """A row for each iteration and evaluation: a pandas DataFrame where pandas is installed,
        else a list of dictionaries.
        """
        rows = read(self.folder.metrics) if self.folder.metrics.is_file() else []
        try:
            import pandas  # type: ignore[import-untyped]
        except ImportError:
            return rows
        return pandas.DataFrame(rows)

    @property
    def before(self) -> dict[str, float]:
        """The mean scores on the evaluation prompts before training; empty where not evaluated.

        Those on a further prompt set are `SET/SCORE`.
        """
        return self._means(0)

    @property
    def after(self) -> dict[str, float]:
        """The mean scores of the last evaluation."""
        names = [file.stem for file in self.folder.evaluations.glob("[0-9]*.json")]
        return self._means(max((int(name) for name in names if name.isdecimal()), default=0))

    def _means(self, iteration: int) -> dict[str, float]:
        return {
            f"{name}/{score}" if name else score: mean
            for name, folder in self.folder.evaluated_sets().items()
            if (file := folder.evaluation(iteration)).is_file()
            for score, mean in Scores.load(file).means().items()
        }

    @silenced_notices()
    def samples(
        self,
        prompts: Sequence[str | Sequence[Message]],
        count: int = 1,
        *,
        seed: int = 0,
        weights: str = "policy",
        best: bool = False,
    ) -> list[Any]:
        """Draw samples with the run's weights: PIL images, or texts without their prompts.

        Args:
            prompts: texts or lists of messages, in the order of the samples.
            count: samples of each prompt.
            seed: keys their random numbers.
            weights: the weight set, `policy` or `ema`.
            best: take the best checkpoint by score instead of the newest one.
        """
        from rlfactory.hardware.torch_defaults import torch_defaults
        from rlfactory.run.inputs import with_inputs
        from rlfactory.tools.restore import restored_run
        from rlfactory.tools.sample import SamplingOptions, draw_samples, sampling_config

        with torch_defaults(), live_objects(self._required({}, of_model=True)):
            config = with_inputs(self.config, self.folder)
            given = [as_prompt(prompt) for prompt in prompts]
            sampled = sampling_config(config, given, SamplingOptions())
            texts = [prompt for prompt in given for _ in range(count)]
            with restored_run(self.path, sampled, best, weights) as (components, evaluator):
                drawn = draw_samples(components, evaluator, texts, seed, weights)
            del components, evaluator
        gc.collect()  # an image model refers to itself
        return as_list(drawn)

    @silenced_notices()
    def pipeline(self, *, weights: str | None = None, best: bool = False) -> Any:
        """The tuned model for inference: a diffusers pipeline, or a pair of a transformers model
        and its tokenizer. LoRA adapters are merged. Takes what `export` takes.
        """
        with TemporaryDirectory() as folder:
            path = self.export(Path(folder) / "model", merge=True, weights=weights, best=best)
            return _load_exported(path)

    @silenced_notices()
    def export(
        self, to: str | Path, *, merge: bool = False, weights: str | None = None, best: bool = False
    ) -> Path:
        """Write the weights for diffusers, transformers and PEFT, as `rlfactory export` does.

        Args:
            to: a folder that is new or empty.
            merge: merge LoRA adapters into the weights.
            weights: the weight set; None: the one that the run evaluates.
            best: take the best checkpoint by score instead of the newest one.

        Raises:
            UserError: there is no checkpoint, or the folder can't be written.
        """
        from rlfactory.hardware.torch_defaults import torch_defaults
        from rlfactory.tools.export.command import ExportOptions, export_run
        from rlfactory.tools.restore import found_checkpoint

        with torch_defaults(), live_objects(self._required({}, of_model=True)):
            config = self.config
            options = ExportOptions(weights or config["evaluation"]["weights"], merge)
            with found_checkpoint(self.path, best) as checkpoint:
                export_run(self.folder, config, checkpoint, Path(to), options)
        return Path(to)

    @silenced_notices()
    def resume(
        self,
        *,
        until: int | None = None,
        force: bool = False,
        listeners: "Sequence[Listener]" = (),
        **given: Any,
    ) -> "Run":
        """Resume from the newest checkpoint, to the same bits as without the interruption (on a
        CPU).

        Args:
            until: the iteration to pause after; beyond the run's number of iterations it extends
                the run.
            force: resume even if the checkpoint was made by another configuration, or the learning
                rate of an extended run changes.
            listeners: called after each iteration and evaluation.
            given: the live objects that the run was started with, by name, unless this object has
                them.

        Raises:
            PlanError: a live object is missing, or the run can't be extended.
        """
        self._objects, listeners = self._required(given), required_listeners(listeners)
        with live_objects(self._objects):
            from rlfactory.train.process.worker import train_in_python

            extends = until is not None and until > self.config["iterations"]
            if not extends and not force and is_done(self.path, self.config):
                return self
            require_same_prompts(self.folder, self._objects, force)
            if until is not None and extends:
                require_free(self.path)
                extended(self.path, self.config, until, force=force, forcing="force=True")
                write_iterations(self.path, until)
                until = None
            train_in_python(self.path, until, force, listeners)
        self.show()
        return self

    def _required(self, given: Mapping[str, Any], *, of_model: bool = False) -> dict[str, Any]:
        """The live objects that the configuration refers to, `of_model` without prompts and
        rewards; PlanError where one is missing.
        """
        objects = {**self._objects, **live_of_run(given)}
        frozen = read_frozen(self.folder.config)
        missing = [name for name in references_in(frozen) if name not in objects]
        unused = [name for name in missing if of_model and name.partition(".")[0] in UNUSED]
        objects |= dict.fromkeys(unused)
        if missing := [name for name in missing if name not in objects]:
            described = read_json(self.folder.objects, dict[str, str])
            problems = []
            for name in missing:
                keyword, _, part = name.partition(".")  # one of several rewards
                how = f"{keyword}={{'{part}': ...}}" if part else f"{keyword}=..."
                message = f"was {described.get(name)} in memory; hand it over: {how}"
                problems.append(Problem(name, message))
            raise PlanError(problems)
        return objects

    def __repr__(self) -> str:
        after = ", ".join(f"{name} {value:.3f}" for name, value in [*self.after.items()][:3])
        return f"<Run {self.path}: {self.status}{f', {after}' if after else ''}>"

    def show(self) -> None:
        """Show scores, curves and samples below a notebook's cell; elsewhere nothing happens."""
        if (shell := notebook_shell()) is not None:
            show_html(self._html())
            self._shown_in = shell.execution_count

    def _repr_html_(self) -> str | None:
        """The HTML of `show`; None in a cell that shows it already, so that the text is used."""
        shell = notebook_shell()
        is_shown = shell is not None and shell.execution_count == self._shown_in
        return None if is_shown else self._html()

    def _html(self) -> str:
        from rlfactory.report.page import notebook_html

        return notebook_html(self.folder, self.before, self.after)


def live_of_run(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The live objects of a run by name; PlanError where something else is given."""
    arguments, others = LiveArguments.of(with_prompts(given))
    if others:
        raise PlanError([Problem(key, "is no live object of a run") for key in others])
    return arguments.objects


def require_same_prompts(folder: RunFolder, objects: Mapping[str, Any], force: bool) -> None:
    """PlanError where a run would go on with other prompts in memory than it began with, or began
    with none in memory.
    """
    digest = getattr(objects.get("prompts"), "digest", None)
    if digest is None:
        return
    if "prompts" not in references_in(read_frozen(folder.config)):
        message = f"are not read by the run in {folder.path}, which has those of its configuration"
        raise PlanError([Problem("prompts", f"{message}; leave them out")])
    began = read_json(folder.objects, dict[str, str])["prompts"]
    if "SHA-256" in began and digest not in began and not force:
        message = f"are not those that the run in {folder.path} began with"
        forced = "force=True goes on all the same, run_dir=FOLDER begins another run"
        raise PlanError([Problem("prompts", f"{message}; {forced}")])


def required_listeners(given: Any) -> list[Any]:
    """Listeners, one alone or several; PlanError where one is neither a listener nor a function of
    an iteration.
    """
    listed = [*given] if isinstance(given, list | tuple) else [given]
    for value in listed:
        name = getattr(value, "__name__", type(value).__name__)
        if isinstance(value, type):
            raise PlanError([Problem("listeners", f"{name} is a class; hand over an instance")])
        if hasattr(value, "after_iteration") and hasattr(value, "after_training"):
            continue
        if not callable(value):
            wanted = "neither a Listener of rlfactory.train.listeners nor a function"
            raise PlanError([Problem("listeners", f"{name} is {wanted}")])
        try:
            signature(value).bind(None)
        except ValueError:  # written in C: its parameters can't be read
            continue
        except TypeError as error:
            message = f"{name} is called with an Iteration alone: {error}"
            raise PlanError([Problem("listeners", message)]) from error
    return listed


def _load_exported(path: Path) -> Any:
    """A complete exported folder, loaded by the library that it is for."""
    from rlfactory.model.pipelines.hub_models import no_bars

    with no_bars():
        if (kind := pipeline_of(path)) is not None:
            import diffusers

            from rlfactory.model.pipelines.modular import load_modular

            if (path / PIPELINE_INDEX).is_file():
                return diffusers.DiffusionPipeline.from_pretrained(path)
            return load_modular(getattr(diffusers, kind), path, {}, {})
        from transformers import AutoModelForCausalLM, AutoTokenizer

        return AutoModelForCausalLM.from_pretrained(path), AutoTokenizer.from_pretrained(path)


def as_list(samples: "GeneratedSamples") -> list[Any]:
    """The images of samples for PIL, lists of frames of videos, or texts."""
    from rlfactory.utils.images import batch_to_pil

    if (images := samples.images) is None:
        return list(samples.texts or ())
    return [batch_to_pil(video) for video in images] if images.ndim == 5 else batch_to_pil(images)
