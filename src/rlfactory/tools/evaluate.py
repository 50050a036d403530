"""`rlfactory evaluate`: scores a run's weights on evaluation prompts."""

from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from rlfactory.run.figures.gallery import gallery
from rlfactory.run.folder import RunFolder
from rlfactory.tools.restore import restored_run
from rlfactory.train.build import Config
from rlfactory.train.components import Components
from rlfactory.train.evaluation.evaluator import Evaluator


def evaluate(path: Path, config: Config, best: bool) -> int:
    """Evaluate a run's weights; write scores and samples, print the means.

    Args:
        path: the run folder. Scores go to `evaluations/DATE.json`, samples to `samples/DATE.*`.
        config: the run's configuration, with what the evaluation changes.
        best: take the best checkpoint by evaluation score instead of the newest one.

    Returns:
        The exit code.
    """

    def score(components: Components, evaluator: Evaluator) -> None:
        evaluation = evaluator(config["evaluation"]["weights"])
        # a name by date, since a run's own evaluations are named by their iteration
        name = datetime.now().strftime("%Y-%m-%d_%H-%M-%S-%f")
        folder, reward = RunFolder(path), components.reward
        evaluation.scores.save(folder.evaluations / f"{name}.json")
        writer = gallery(
            components.model.media,
            folder.samples,
            reward.main,
            reward.best_score,
            config["evaluation"]["grid"],
            evaluator.seed,
        )
        shown = writer.show(name, reward.main, evaluation.samples, evaluation.scores)
        table = Table("score", "mean", "n", box=None)
        for key, mean in evaluation.scores.means().items():
            table.add_row(key, f"{mean:.3f}", str(len(evaluation.scores.prompts)))
        Console().print(table)
        print(f"samples: {shown}")

    return restored_run(path, config, score, best)
