"""Decides when an evaluation or a preview is due, runs it, and writes its results."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from rlfactory.prompts.ops.chat import THOUGHTS_END
from rlfactory.report.results import Gallery, show_results
from rlfactory.rollout import GeneratedSamples
from rlfactory.run.atomic_write import write_text
from rlfactory.run.disk_errors import explain_disk_errors
from rlfactory.run.environment import current_environment, record_environment
from rlfactory.run.folder import RunFolder, RunFolderError
from rlfactory.run.loggers import Logger
from rlfactory.run.loggers.base import log_samples
from rlfactory.run.samples import STRIP_PROMPTS
from rlfactory.run.scores import Scores
from rlfactory.train.checkpointing.savepoint import Savepoint
from rlfactory.train.components import Components, Metrics
from rlfactory.train.evaluation.evaluator import Evaluation, Evaluator, evaluation_metrics
from rlfactory.train.listeners import Iteration, Listener, Summary, is_due
from rlfactory.utils.fault_injection import fault_point
from rlfactory.utils.text import plural


class EvaluationFiles:
    """The files of one prompt set's evaluations: scores, samples, the strip and pairs.

    Args:
        folder: the run folder, or that of a prompt set.
        count: the number of samples in a grid.
    """

    def __init__(self, folder: RunFolder, evaluator: Evaluator, count: int) -> None:
        self.folder, self.main, self.draws = folder, evaluator.main, evaluator.draws
        self.prompts = [prompt.text for prompt in evaluator.prompts]
        good, seed = evaluator.best_score, evaluator.seed
        self.gallery = Gallery(folder.samples, self.main, good, count, seed)

    def write(self, name: str, evaluation: Evaluation, done: int | None = None) -> Path | None:
        """Write the scores, and draw a grid of samples, whose path is returned; None without any.

        Where this is after `done` iterations of training, samples are kept for strip and pairs.
        """
        scores, resumes = f"scores in {self.folder.evaluations}", done is not None
        with explain_disk_errors(self.folder.path, scores, resumes=resumes):
            self.folder.samples.mkdir(parents=True, exist_ok=True)
            evaluation.scores.save(self.folder.evaluations / f"{name}.json")
        fault_point("evaluating")
        if not self.draws:
            return None
        samples, title = evaluation.samples, self.main
        if done is not None:
            self.gallery.record_evaluation(done, samples)
            name, title = f"eval_{name}", f"{title} after {plural(done, 'iteration')}"
        return self.gallery.show(name, title, samples, evaluation.scores)


class EvaluationReporter(Listener):
    """Writes what there is to look at, `count` samples in a grid; on rank 0 only."""

    def __init__(
        self, folder: RunFolder, evaluator: Evaluator, logger: Logger, *, count: int
    ) -> None:
        self.folder, self.evaluator, self.logger = folder, evaluator, logger
        self.files = {
            name: EvaluationFiles(folder.prompt_set(name), own, count)
            for name, own in {"": evaluator, **evaluator.sets}.items()
        }

    def before_training(self, components: Components, done: int) -> None:
        """Record the devices of this run, and one prompt as a language model is given it."""
        hardware = components.hardware
        is_gpu = hardware.device.type == "cuda"
        device = torch.cuda.get_device_name(hardware.device) if is_gpu else hardware.device.type
        environment = current_environment(device, hardware.world_size)
        with explain_disk_errors(self.folder.path, "the environment"):
            record_environment(self.folder.environment, environment)
        model: Any = components.model
        if model.media == "texts":
            example, algo = self.evaluator.prompts[0], components.algo
            text, shown = example.text, {}
            if self.evaluator.given is not None:
                text, answer = algo.completion(example, 0)
                shown = {self.folder.completion: model.as_learned(text, answer, algo.length)}
            prompt = model.as_given(text)
            if algo.learns_answers_alone:
                thoughts, end, learned = shown[self.folder.completion].partition(THOUGHTS_END)
                if end:
                    prompt += thoughts + end
                    shown = {self.folder.completion: learned}
            with explain_disk_errors(self.folder.path, "an example of a prompt"):
                for path, content in ({self.folder.prompt: prompt} | shown).items():
                    write_text(path, content + "\n")

    def after_evaluation(self, done: int, evaluation: Evaluation, metrics: Metrics) -> None:
        """Write the scores, and draw a grid of samples."""
        for name, own in {"": evaluation, **evaluation.sets}.items():
            if (path := self.files[name].write(f"{done:06d}", own, done)) is not None:
                log_samples(self.logger, done, path, name)

    def after_preview(self, done: int, samples: GeneratedSamples) -> None:
        self.files[""].gallery.record_preview(done, samples)

    def after_training(self, summary: Summary) -> None:
        """Draw curves, strip and pairs, write summary and page, and print where to look."""
        for files in self.files.values():
            if files.draws:
                files.gallery.write_strip(files.prompts)
        before, after = summary.initial_scores, summary.final_scores
        show_results(self.folder, before, after, summary.outcome, summary.advice)


class EvaluationSchedule(Listener):
    """Evaluates the weights every N iterations and previews them every M.

    Attributes:
        last_evaluated: the iteration after which it was last decided whether an evaluation or a
            preview is due, -1 before the first; saved, so that a resumed run repeats neither.
        listeners: receive each evaluation and preview.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        evaluator: Evaluator,
        savepoint: Savepoint,
        folder: RunFolder,
        listeners: Sequence[Listener],
    ) -> None:
        self.weights: str = options["weights"]
        self.every, self.preview_every = options["every"], options["preview_every"]
        self.evaluator, self.savepoint, self.folder = evaluator, savepoint, folder
        self.listeners = listeners
        self.last_evaluated = -1

    def after_iteration(self, iteration: Iteration) -> None:
        if not iteration.is_last:
            self.evaluate_if_due(iteration.done)

    def evaluate_if_due(self, done: int) -> None:
        """Evaluate or preview the weights if that is due after `done` iterations, but not twice."""
        if self.last_evaluated == done:
            return
        if is_due(done, self.every):
            self.evaluate(done)
        elif self.evaluator.draws and is_due(done, self.preview_every):
            samples = self.evaluator.preview(self.weights, STRIP_PROMPTS)
            for listener in self.listeners:
                listener.after_preview(done, samples)
        self.last_evaluated = done
        self.savepoint.mark()

    def evaluate(self, done: int) -> Scores:
        """Evaluate the current weights."""
        evaluation = self.evaluator(self.weights)
        self.last_evaluated = done
        metrics = evaluation_metrics(evaluation)
        for listener in self.listeners:
            listener.after_evaluation(done, evaluation, metrics)
        self.savepoint.mark()
        return evaluation.scores

    def initial_scores(self) -> Scores:
        """The scores before training: evaluated now, or read from the folder of a resumed run.

        Raises:
            RunFolderError: they are missing, or are of other prompts.
        """
        if self.last_evaluated < 0:
            return self.evaluate(0)
        path = self.folder.evaluation(0)
        if not path.is_file():
            raise RunFolderError(f"{path} is missing, the scores before training; put it back")
        scores = Scores.load(path)
        if scores.prompts != [str(prompt.text) for prompt in self.evaluator.prompts]:
            raise RunFolderError(
                f"{self.folder.path} began with other prompts to evaluate on, so its results would"
                " be no pairs; resume it with those, or begin another run: run_dir=FOLDER"
                f" begin_from={self.folder.path}"
            )
        return scores
