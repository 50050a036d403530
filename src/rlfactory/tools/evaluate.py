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
from rlfactory.train.evaluation.evaluator import Evaluation, Evaluator


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
        table = Table("score", "mean", "n", box=None)
        shown = [_write(RunFolder(path), config, evaluator, evaluation, name, table)]
        for prompt_set, own in evaluation.sets.items():
            folder, of_set = RunFolder(path).prompt_set(prompt_set), evaluator.sets[prompt_set]
            shown.append(_write(folder, config, of_set, own, name, table, f"{prompt_set}/"))
        Console().print(table)
        for file in shown:
            print(f"samples: {file}")

    return restored_run(path, config, score, best)


def _write(
    folder: RunFolder,
    config: Config,
    evaluator: Evaluator,
    evaluation: Evaluation,
    name: str,
    table: Table,
    prefix: str = "",
) -> Path:
    """Write one prompt set's scores and samples, and add the means to a table."""
    folder.samples.mkdir(parents=True, exist_ok=True)
    evaluation.scores.save(folder.evaluations / f"{name}.json")
    media, grid = evaluator.model.media, config["evaluation"]["grid"]
    main, good = evaluator.main, evaluator.best_score
    writer = gallery(media, folder.samples, main, good, grid, evaluator.seed)
    for key, mean in evaluation.scores.means().items():
        table.add_row(f"{prefix}{key}", f"{mean:.3f}", str(len(evaluation.scores.prompts)))
    return writer.show(name, main, evaluation.samples, evaluation.scores)
