"""`rlfactory evaluate`: scores a run's weights on evaluation prompts."""

from datetime import datetime
from pathlib import Path

from rich.console import Console

from rlfactory.run.folder import RunFolder
from rlfactory.run.summary import means_table
from rlfactory.tools.restore import restored_run
from rlfactory.train.build import Config
from rlfactory.train.components import Components
from rlfactory.train.evaluation.evaluator import Evaluator
from rlfactory.train.evaluation.schedule import EvaluationFiles


def evaluate(path: Path, config: Config, best: bool) -> int:
    """Evaluate a run's weights; write scores and samples, print the means with their intervals.

    Args:
        path: the run folder. Scores go to `evaluations/DATE.json`, samples to `samples/DATE.*`.
        config: the run's configuration, with what the evaluation changes.
        best: take the best checkpoint by evaluation score instead of the newest one.

    Returns:
        The exit code.
    """

    folder = RunFolder(path)

    def score(components: Components, evaluator: Evaluator) -> None:
        evaluation = evaluator(config["evaluation"]["weights"])
        # a name by date, since a run's own evaluations are named by their iteration
        name = datetime.now().strftime("%Y-%m-%d_%H-%M-%S-%f")
        grid = config["evaluation"]["grid"]
        shown = [EvaluationFiles(folder, evaluator, grid).write_as(name, evaluation)]
        for prompt_set, own in evaluation.sets.items():
            files = EvaluationFiles(folder.prompt_set(prompt_set), evaluator.sets[prompt_set], grid)
            shown.append(files.write_as(name, own))
        of_sets = {prompt_set: own.scores for prompt_set, own in evaluation.sets.items()}
        Console().print(means_table({"": evaluation.scores, **of_sets}))
        for file in filter(None, shown):
            print(f"samples: {file}")

    return restored_run(path, config, score, best)
