"""What is done with the weights of a run: they are evaluated, drawn from, looked into, exported."""

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from rlfactory.build import Config, build, evaluator
from rlfactory.estimate.exhausted import explained, is_exhaustion
from rlfactory.joining import alone
from rlfactory.mendable import MENDABLE
from rlfactory.model.weights import REFERENCE
from rlfactory.parts import Parts, Silent
from rlfactory.prompts.base import Prompt
from rlfactory.run.best import best_step
from rlfactory.run.checkpoint import checkpoint_of, load_checkpoint, newest
from rlfactory.run.evaluation import Evaluator
from rlfactory.run.folder import RunFolder, RunFolderError
from rlfactory.run.gallery import gallery
from rlfactory.run.manifest import DamagedError, verify
from rlfactory.run.pictures import grid
from rlfactory.saying import say_error
from rlfactory.targets import locate
from rlfactory.worker import read_config


def evaluate(path: Path, config: Config, best: bool) -> int:
    """Evaluate a run's weights under `config`; writes scores and a grid, prints the means."""

    def show(parts: Parts, judge: Evaluator) -> None:
        evaluation = judge(config["evaluation"]["weights"])
        stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S-%f")
        evaluation.scores.save(RunFolder(path).evaluations / f"{stamp}.json")
        reward, count = parts.reward, config["evaluation"]["grid"]
        rooms = gallery(parts.model.media, RunFolder(path).samples, reward.main, reward.good, count)
        shown = rooms.show(stamp, reward.main, evaluation.samples, evaluation.scores)
        table = Table("score", "mean", "n", box=None)
        for name, mean in evaluation.scores.means().items():
            table.add_row(name, f"{mean:.3f}", str(len(evaluation.scores.prompts)))
        Console().print(table)
        print(f"samples: {shown}")

    return _with_weights(path, config, show, best)


def sample(
    path: Path,
    prompts: Sequence[str],
    count: int,
    seed: int,
    out: Path | None,
    weights: str,
    best: bool,
) -> int:
    """Write `count` samples of each prompt by a run's weights: pictures, or a page."""
    folder = out or RunFolder(path).samples / "drawn"

    def draw(parts: Parts, judge: Evaluator) -> None:
        texts = [prompt for prompt in prompts for _ in range(count)]
        with parts.model.weights(weights):
            drawn = judge.draw([Prompt(text, {}) for text in texts], f"sample/{seed}")
        folder.mkdir(parents=True, exist_ok=True)
        if drawn.images is not None:
            for number, image in enumerate(drawn.images):
                _save_png(image, folder / f"{number:03d}.png")
            grid(drawn.images, texts, folder / "grid.png")
        for text, continued in zip(texts, drawn.texts or [], strict=False):
            print(f"{text}{continued}\n")
        if drawn.texts is not None:
            pairs = zip(texts, drawn.texts, strict=True)
            page = "\n\n".join(f"**{text}**{continued}" for text, continued in pairs)
            (folder / "texts.md").write_text(page + "\n", encoding="utf-8")
        print(f"{len(texts)} samples in {folder}")

    return _with_weights(path, read_config(RunFolder(path)), draw, best, weights)


def inspect(path: Path, weights: str, prompts: int, best: bool) -> int:
    """Look inside a run's language model: figures and tables in the run's `inspect` folder."""

    def look(parts: Parts, judge: Evaluator) -> None:
        from rlfactory.inspection.command import look_inside

        look_inside(RunFolder(path), parts, parts.prompts.held_out(prompts), weights, judge.seed)

    config = read_config(RunFolder(path))
    if locate(config["model"]["_target_"], "model").media != "texts":
        say_error(f"{path} trained an image generator; only language models can be inspected")
        return 1
    return _with_weights(path, config, look, best, REFERENCE)


def export(path: Path, to: Path, merge: bool, weights: str, best: bool) -> int:
    """Write a run's weights for other libraries to `to`, and print the lines that load them."""
    from rlfactory.export.command import export_run

    try:
        run, checkpoint = RunFolder(path), _checkpoint(path, best)
        code = export_run(run, read_config(run), checkpoint, to, merge=merge, weights=weights)
    except MENDABLE as error:
        say_error(str(error))
        return 1
    print(f"exported to {to}; its card is {to / 'README.md'}. To load it:\n\n{code}")
    return 0


def _with_weights(
    path: Path, config: Config, use: Callable[[Parts, Evaluator], None], best: bool, *sets: str
) -> int:
    """Build a run's parts, restore its newest or its best weights, and hand both over.

    Of `sets`, those that the run did not keep are the weights that it began with.
    """
    try:
        checkpoint, config = _checkpoint(path, best), alone(config)
        parts = build(config)
        for name in sets:
            parts.model.weights.add(name)
        load_checkpoint(checkpoint, parts.model)
        use(parts, evaluator(config, parts, Silent()))
    except Exception as error:
        out = is_exhaustion(error)
        if not out and not isinstance(error, MENDABLE):
            raise
        say_error(explained(error, config) if out else str(error))
        return 1
    return 0


def _checkpoint(path: Path, best: bool) -> Path:
    checkpoints = RunFolder(path).checkpoints
    if not best:
        if (found := newest(checkpoints)) is None:
            raise RunFolderError(f"{path} holds no checkpoint yet, or none that is sound")
        return found
    if (step := best_step(checkpoints)) is None:
        raise RunFolderError(f"{path} has kept no best checkpoint; leave out --best")
    try:
        verify(found := checkpoint_of(checkpoints, step))
    except DamagedError as error:
        raise RunFolderError(f"{found} is damaged: {error}; leave out --best") from error
    return found


def _save_png(image: torch.Tensor, path: Path) -> None:
    from rlfactory.pillow import to_pil

    to_pil(image).save(path)
