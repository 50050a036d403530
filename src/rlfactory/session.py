"""One training run, from its first evaluation to its last picture."""

import shutil
import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console

from rlfactory.build import Config, budget, build, evaluator, make
from rlfactory.model.base import ImageModel
from rlfactory.parts import Metrics
from rlfactory.rollout import Rollout
from rlfactory.run.best import Best
from rlfactory.run.checkpoint import checkpoint_bytes, checkpoint_of, save_checkpoint
from rlfactory.run.curves import draw_curves
from rlfactory.run.evaluation import Evaluation, evaluation_metrics
from rlfactory.run.folder import RunFolder, enough_space
from rlfactory.run.gallery import STRIP_PROMPTS, gallery, log_pictures
from rlfactory.run.metrics import MetricsLog, read
from rlfactory.run.progress import Progress
from rlfactory.run.scores import Scores
from rlfactory.run.summary import summary_table, where_to_look, write_summary
from rlfactory.trainer import Trainer


class Session:
    """The loop with what surrounds it: evaluations, checkpoints, pictures, the log of metrics."""

    def __init__(self, config: Config, folder: RunFolder) -> None:
        self.folder, self.config = folder, config
        self.progress = Progress(config["iterations"], stream=sys.stdout)
        self.parts = build(config, self.progress.advance)
        self.settings: Mapping[str, int | str] = config["evaluation"]
        self.checkpoint_every: int = config["checkpoint"]["every"]
        self.trainer = Trainer(self.parts, budget(config), self.progress)
        self.logger = make(config, "logger")
        self.logger.start(folder.path, config)
        self.metrics = MetricsLog(folder.metrics, [self.logger])
        self.weights: str = config["evaluation"]["weights"]
        self.evaluator = evaluator(config, self.parts, self.progress)
        reward, count = self.parts.reward, config["evaluation"]["grid"]
        media = self.parts.model.media
        self.gallery = gallery(media, folder.samples, reward.main, reward.good, count)
        self.best = Best(folder.checkpoints, reward.main, config["stop"]["kl"])
        self.keeps_best: bool = config["checkpoint"]["best"]
        self.done = 0

    def run(self) -> bool:
        """Train between two evaluations; False if it was interrupted. What there is by then is
        kept.
        """
        finished = True
        with self.progress:
            if isinstance(self.parts.model, ImageModel):
                self.parts.model.prepare(self.config["sample_batch"])
            before = self.evaluate()
            try:
                self.trainer.run(self.after_iteration)
            except KeyboardInterrupt:
                finished = False
            except Exception:
                # whatever went wrong, what was learned so far is kept
                if self.done:
                    self.save()
                raise
            self.save()
            after = self.evaluate().scores if finished else None
        self.conclude(before.scores, after)
        return finished

    def after_iteration(self, iteration: int, metrics: Metrics, rollout: Rollout) -> None:
        """Log an iteration, and do what its number asks for."""
        del rollout
        self.done = iteration + 1
        self.metrics.log(self.done, metrics)
        self.progress.iteration(iteration, metrics, self.parts.reward.main)
        if self.done == self.trainer.budget.iterations:
            return
        if _due(self.done, self.checkpoint_every):
            self.save()
        if _due(self.done, int(self.settings["every"])):
            self.evaluate()
        elif _due(self.done, int(self.settings["preview_every"])):
            self.preview()

    def evaluate(self) -> Evaluation:
        """Scores and a grid of the weights as they are now."""
        evaluation = self.evaluator(self.weights)
        scores = evaluation.scores
        scores.save(self.folder.evaluation(self.done))
        self.metrics.log(self.done, evaluation_metrics(scores))
        self.gallery.keep(self.done, evaluation.samples)
        title = f"{self.parts.reward.main} after {self.done} iterations"
        shown = self.gallery.show(f"eval_{self.done:06d}", title, evaluation.samples, scores)
        log_pictures(self.logger, self.done, shown)
        if self.keeps_best and self.done and self.best.beaten_by(scores):
            self.keep_best(scores)
        return evaluation

    def keep_best(self, scores: Scores) -> None:
        """A checkpoint of this iteration, in the place of the best one before."""
        self.save()
        former = self.best.take(self.done, scores)
        if former is not None and not _due(former, self.checkpoint_every):
            shutil.rmtree(checkpoint_of(self.folder.checkpoints, former))

    def preview(self) -> None:
        """The samples of the strip alone."""
        self.gallery.keep(self.done, self.evaluator.preview(self.weights, STRIP_PROMPTS))

    def save(self) -> None:
        """A checkpoint of this iteration, unless it has one."""
        target = checkpoint_of(self.folder.checkpoints, self.done)
        if not target.exists():
            enough_space(self.folder.path, checkpoint_bytes(self.parts.model))
            save_checkpoint(target, self.parts.model, self.weights, self._state())

    def _state(self) -> dict[str, Any]:
        """What a resumed run needs beside weights."""
        coefficients, advantage = self.parts.regularizer.coefficients, self.parts.algo.advantage
        return {
            "iterations": self.done,
            "updates": self.trainer.learner.updates,
            "evaluations": self.trainer.evaluations,
            "coefficients": {name: c.state_dict() for name, c in coefficients.items()},
            "advantage": None if advantage is None else advantage.state_dict(),
            "reward": self.parts.reward.state_dict(),
            "stop": self.parts.stop.state_dict(),
        }

    def conclude(self, before: Scores, after: Scores | None) -> None:
        """Draw the curves and the strip, write the summary, say where to look."""
        records = read(self.folder.metrics)
        draw_curves(records, self.folder.curves, reward=self.parts.reward.main)
        self.gallery.conclude([prompt.text for prompt in self.evaluator.prompts])
        write_summary(self.folder.summary, before=before, after=after, metrics=records)
        self.logger.finish()
        console = Console()
        if after is not None:
            console.print(summary_table(before, after))
        for line in where_to_look(self.folder):
            console.print(line, markup=False, highlight=False, soft_wrap=True)


def _due(done: int, every: int) -> bool:
    return every > 0 and done % every == 0
