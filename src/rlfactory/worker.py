"""What happens once a plan is frozen: everything here reads the run folder and never Hydra."""

import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import torch
import yaml
from rich.console import Console
from rich.table import Table

from rlfactory.build import Config, budget, build, evaluation_sigmas
from rlfactory.hardware.base import HardwareError
from rlfactory.model.pipeline import ModelError
from rlfactory.prompts.base import Prompt, PromptError
from rlfactory.reward.base import RewardError
from rlfactory.run.checkpoint import load_checkpoint, newest
from rlfactory.run.evaluation import Evaluator
from rlfactory.run.folder import RunFolder, RunFolderError
from rlfactory.run.pictures import grid
from rlfactory.scoring import TrainingError
from rlfactory.session import Session
from rlfactory.trainer import Parts

log = logging.getLogger(__name__)

# What a user can mend; anything else is a defect of ours and keeps its traceback on the screen.
MENDABLE = (
    HardwareError,
    ModelError,
    PromptError,
    RewardError,
    RunFolderError,
    TrainingError,
    OSError,
)


def read_config(folder: RunFolder) -> Config:
    """The frozen configuration of a run."""
    if not folder.config.is_file():
        raise RunFolderError(f"{folder.path} is no run folder: it holds no config.yaml")
    config: Config = yaml.safe_load(folder.config.read_text(encoding="utf-8"))
    return config


def run(path: Path) -> int:
    """Train as the frozen configuration of `path` says; returns the exit code."""
    folder = RunFolder(path)
    folder.set_status("running")
    with folder.attach_log():
        try:
            finished = Session(read_config(folder), folder).run()
        except KeyboardInterrupt:
            finished = False
        except Exception as error:
            folder.set_status("failed")
            log.exception("the run failed")
            if not isinstance(error, MENDABLE):
                raise
            _say_error(f"{error}\nThe traceback is in {folder.log}")
            return 1
    folder.set_status("done" if finished else "interrupted")
    if not finished:
        Console(stderr=True).print(f"Interrupted; what there is so far is in {path}", markup=False)
    return 0 if finished else 130


def evaluate(path: Path, config: Config) -> int:
    """Evaluate a run's newest weights under `config`; writes scores and a grid, prints the
    means.
    """

    def show(parts: Parts, evaluator: Evaluator) -> None:
        evaluation = evaluator(config["evaluation"]["weights"])
        stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
        evaluation.scores.save(RunFolder(path).evaluations / f"{stamp}.json")
        count = config["evaluation"]["grid"]
        picture = RunFolder(path).samples / f"{stamp}.png"
        shown = evaluation.scores.values[parts.reward.main][:count].tolist()
        prompts = evaluation.scores.prompts[:count]
        grid(evaluation.images[:count], prompts, picture, scores=shown, good=parts.reward.good)
        table = Table("score", "mean", "n", box=None)
        for name, mean in evaluation.scores.means().items():
            table.add_row(name, f"{mean:.3f}", str(len(evaluation.scores.prompts)))
        Console().print(table)
        print(f"samples: {picture}")

    return _with_weights(path, config, show)


def sample(
    path: Path, prompts: Sequence[str], count: int, seed: int, out: Path | None, weights: str
) -> int:
    """Write `count` pictures of each prompt by a run's newest weights, and a grid of all."""
    folder = out or RunFolder(path).samples / "drawn"

    def draw(parts: Parts, evaluator: Evaluator) -> None:
        texts = [prompt for prompt in prompts for _ in range(count)]
        wanted = [Prompt(text, {}) for text in texts]
        with parts.model.weights(weights):
            images = evaluator.draw(wanted, f"sample/{seed}")
        folder.mkdir(parents=True, exist_ok=True)
        for number, image in enumerate(images):
            _save_png(image, folder / f"{number:03d}.png")
        grid(images, texts, folder / "grid.png")
        print(f"{len(images)} pictures in {folder}")

    return _with_weights(path, read_config(RunFolder(path)), draw)


def _with_weights(path: Path, config: Config, use: Callable[[Parts, Evaluator], None]) -> int:
    """Build a run's parts, restore its newest weights, and hand both over."""
    try:
        checkpoint = newest(RunFolder(path).checkpoints)
        if checkpoint is None:
            raise RunFolderError(f"{path} holds no checkpoint yet")
        parts = build(config)
        load_checkpoint(checkpoint, parts.model)
        evaluator = Evaluator(
            model=parts.model,
            reward=parts.reward,
            prompts=parts.prompts.held_out(config["evaluation"]["prompts"]),
            sigmas=evaluation_sigmas(config, parts.model),
            seed=budget(config).seed,
            sample_batch=config["sample_batch"],
            watcher=Silent(),
        )
        use(parts, evaluator)
    except MENDABLE as error:
        _say_error(str(error))
        return 1
    return 0


class Silent:
    """A watcher that shows nothing."""

    def phase(self, name: str, *, total: int) -> None:
        """Ignore a phase."""

    def advance(self, count: int) -> None:
        """Ignore progress."""


def _save_png(image: torch.Tensor, path: Path) -> None:
    from PIL import Image

    Image.fromarray(image.permute(1, 2, 0).numpy()).save(path)


def _say_error(message: str) -> None:
    Console(stderr=True).print(f"error: {message}", markup=False, highlight=False, soft_wrap=True)
