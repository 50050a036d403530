"""What of a run is looked at: its evaluations and previews, and what it leaves to be seen."""

from collections.abc import Sequence
from functools import partial

from rich.console import Console

from rlfactory.build import Config, evaluator
from rlfactory.fault import fault
from rlfactory.keeping import due
from rlfactory.parts import Metrics, Parts, Watcher
from rlfactory.run.curves import draw_curves
from rlfactory.run.disk import Patience
from rlfactory.run.evaluation import Evaluation, evaluation_metrics
from rlfactory.run.folder import RunFolder, RunFolderError
from rlfactory.run.gallery import STRIP_PROMPTS, gallery
from rlfactory.run.loggers import Logger
from rlfactory.run.metrics import read
from rlfactory.run.scores import Scores
from rlfactory.run.summary import summary_table, where_to_look, write_summary
from rlfactory.run.telling import tell_samples


class Showing:
    """Judges the weights of a run on its held-out prompts, and keeps pictures and tables of that.

    `weights` names the set that is judged; `patience` is for the disk. All processes judge, and the
    one that leads keeps.
    """

    def __init__(
        self, config: Config, folder: RunFolder, parts: Parts, watcher: Watcher, patience: Patience
    ) -> None:
        settings, reward = config["evaluation"], parts.reward
        self.folder, self.patience, self.main = folder, patience, reward.main
        self.weights: str = settings["weights"]
        self.every, self.preview_every = settings["every"], settings["preview_every"]
        self.evaluator, self.leads = evaluator(config, parts, watcher), parts.hardware.rank == 0
        self.gallery = gallery(
            parts.model.media, folder.samples, reward.main, reward.good, settings["grid"]
        )

    def is_due(self, done: int) -> bool:
        """Whether there is an evaluation after so many iterations."""
        return due(done, self.every)

    def evaluate(self, done: int, logger: Logger) -> tuple[Scores, Metrics]:
        """Scores and a grid of the weights as they are now, and what to log of the scores."""
        evaluation = self.evaluator(self.weights)
        scores = evaluation.scores
        if self.leads:
            self._keep(done, evaluation, logger)
        return scores, evaluation_metrics(scores)

    def _keep(self, done: int, evaluation: Evaluation, logger: Logger) -> None:
        """What there is to be seen of an evaluation."""
        scores = evaluation.scores
        self.patience.over(partial(scores.save, self.folder.evaluation(done)), "scores")
        fault("evaluating")
        self.gallery.keep(done, evaluation.samples)
        title = f"{self.main} after {done} iterations"
        shown = self.gallery.show(f"eval_{done:06d}", title, evaluation.samples, scores)
        tell_samples(logger, done, shown)

    def preview(self, done: int) -> None:
        """A column of the strip, if it is its turn."""
        if due(done, self.preview_every):
            shown = self.evaluator.preview(self.weights, STRIP_PROMPTS)
            if self.leads:
                self.gallery.keep(done, shown)

    def first(self) -> Scores:
        """The scores of the weights that training began with, as an earlier sitting found them."""
        path = self.folder.evaluation(0)
        if not path.is_file():
            raise RunFolderError(f"{path} is missing, the scores before training; put it back")
        return Scores.load(path)

    def conclude(self, before: Scores, after: Scores | None, advice: Sequence[str]) -> None:
        """Draw the curves and the strip, write the summary, say where to look."""
        records = read(self.folder.metrics)
        draw_curves(records, self.folder.curves, reward=self.main)
        self.gallery.conclude([prompt.text for prompt in self.evaluator.prompts])
        write_summary(
            self.folder.summary, before=before, after=after, metrics=records, advice=advice
        )
        console = Console()
        if after is not None:
            console.print(summary_table(before, after))
        for line in where_to_look(self.folder):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
