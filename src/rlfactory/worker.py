"""What happens once a plan is frozen: everything here reads the run folder and never Hydra."""

import logging
import os
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import torch
import yaml
from rich.console import Console
from rich.table import Table

from rlfactory.build import Config, build, evaluator, hardware_of
from rlfactory.estimate.exhausted import explained, is_exhaustion
from rlfactory.hardware.base import HardwareError
from rlfactory.inspection.errors import InspectionError
from rlfactory.joining import alone, joined, logs_of, told_apart
from rlfactory.model.pipeline import ModelError
from rlfactory.model.weights import REFERENCE
from rlfactory.older import filled, frozen_problems, newer
from rlfactory.parts import Parts
from rlfactory.prompts.base import Prompt, PromptError
from rlfactory.ranks import is_many
from rlfactory.reward.base import RewardError
from rlfactory.run.best import best_step
from rlfactory.run.checkpoint import checkpoint_of, load_checkpoint, newest
from rlfactory.run.evaluation import Evaluator
from rlfactory.run.folder import RunFolder, RunFolderError, Status
from rlfactory.run.gallery import gallery
from rlfactory.run.manifest import DamagedError, verify
from rlfactory.run.owner import owned
from rlfactory.run.pictures import grid
from rlfactory.run.requeue import requeue
from rlfactory.run.signals import Stop
from rlfactory.scoring import TrainingError
from rlfactory.session import Session
from rlfactory.targets import locate

log = logging.getLogger(__name__)

# What a user can mend; anything else is a defect of ours and keeps its traceback on the screen.
MENDABLE = (
    HardwareError,
    InspectionError,
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
    if problems := frozen_problems(config):
        raise RunFolderError("; ".join(map(str, problems)))
    if lacking := newer(config):
        log.warning("config.yaml lacks %s: this version's defaults count", ", ".join(lacking))
    return filled(config)


def run(path: Path, until: int | None = None, force: bool = False, take_over: bool = False) -> int:
    """Train as the frozen configuration of `path` says, from its newest checkpoint if it has one;
    returns the exit code.
    """
    folder, stop = RunFolder(path), Stop()
    try:
        with stop, owned(path, take_over) as said:
            config = read_config(folder)
            folder.set_status("running")
            with folder.attach_log():
                if said:
                    log.warning("%s", said)
                status = _train(folder, config, stop, until, force)
            with suppress(OSError):
                folder.set_status(status)
    except KeyboardInterrupt:
        return stop.code
    except (RunFolderError, OSError) as error:  # nothing has begun
        say_error(str(error))
        return 1
    return 1 if status == "failed" else _ended(path, status, stop, config)


def _train(folder: RunFolder, config: Config, stop: Stop, until: int | None, force: bool) -> Status:
    """One sitting; the status that it leaves."""
    try:
        hardware = None
        if is_many(config["hardware"]):
            for old in logs_of(folder):
                old.unlink()
            hardware = hardware_of(config)
            joined(hardware, config, folder.path)
        outcome = Session(config, folder, until, force, stop, hardware).run()
        if hardware is not None:
            hardware.close()
    except KeyboardInterrupt:
        return stop.status
    except Exception as error:
        with suppress(OSError):  # it may be what failed
            folder.set_status("failed")
        log.exception("the run failed")
        error = told_apart(error, folder)
        out = is_exhaustion(error)
        if not out and not isinstance(error, MENDABLE):
            raise
        said = explained(error, config) if out else error
        say_error(f"{said}\nThe traceback is in {folder.log}")
        return "failed"
    return "interrupted" if outcome == "paused" else outcome


def _ended(path: Path, status: Status, stop: Stop, config: Config) -> int:
    """Say what became of a run that did not fail; the exit code."""
    if status == "done":
        return 0
    name = status if stop.asked else "paused"
    typed = f"rlfactory resume {shlex.quote(str(path))}"
    _say(f"{name.capitalize()}; what there is so far is in {path}. To go on: {typed}")
    job = os.environ.get("SLURM_JOB_ID")
    if status == "preempted" and job and config["checkpoint"]["requeue"]:
        try:
            requeue(job)
        except RuntimeError as error:
            _say(f"{error}; it is not in the queue again")
        else:
            _say(f"job {job} is in the queue again")
            return 0
    return stop.code if stop.asked else 0


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


class Silent:
    """A watcher that shows nothing."""

    def phase(self, name: str, *, total: int) -> None:
        """Ignore a phase."""

    def advance(self, count: int) -> None:
        """Ignore progress."""


def _save_png(image: torch.Tensor, path: Path) -> None:
    from rlfactory.pillow import to_pil

    to_pil(image).save(path)


def say_error(message: str) -> None:
    """One line for whoever typed the command."""
    _say(f"error: {message}")


def _say(message: str) -> None:
    Console(stderr=True).print(message, markup=False, highlight=False, soft_wrap=True)
