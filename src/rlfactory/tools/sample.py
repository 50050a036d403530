"""`rlfactory sample`: images or texts of given prompts, by a run's weights."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from torch import Tensor

from rlfactory.config.problems import PlanError, Problem
from rlfactory.prompts.base import Prompt
from rlfactory.report.image_grid import grid
from rlfactory.report.results import beside_sources
from rlfactory.rollout import GeneratedSamples
from rlfactory.run.atomic_write import write_json
from rlfactory.run.disk_errors import OF_DISK, explain_disk_errors
from rlfactory.run.folder import RunFolder, RunFolderError
from rlfactory.tools.restore import located_config, restored_run
from rlfactory.train.components import Components
from rlfactory.train.evaluation.evaluator import Evaluator
from rlfactory.utils.console import printable
from rlfactory.utils.images import batch_to_pil, save_animation, to_pil
from rlfactory.utils.text import plain, plural
from rlfactory.utils.types import Size

Config = Mapping[str, Any]


@dataclass(frozen=True)
class SamplingOptions:
    """Settings that differ from those of the run's evaluations; None: as there.

    Attributes:
        steps: sampling steps of an image.
        size: pixels of a square's edge, or height and width.
        guidance: scale of classifier-free guidance, or the guidance that a network takes as input.
        temperature: of tokens; 0 takes the most likely token.
    """

    steps: int | None = None
    size: Size | None = None
    guidance: float | None = None
    temperature: float | None = None


def sample(
    path: Path,
    prompts: Sequence[str],
    count: int,
    seed: int,
    out: Path | None,
    weights: str,
    best: bool,
    options: SamplingOptions,
    moved: Mapping[str, str] | None = None,
) -> None:
    """Write `count` samples of each prompt: PNG or GIF files and a grid, or a page of texts.

    `samples.json` beside them holds the prompts and all settings. Nothing is overwritten.

    Args:
        count: samples of each prompt, in the order of the prompts.
        seed: keys their random numbers.
        out: the folder to write to, which is new or empty; by default the first free one of
            `samples/drawn_001`, `samples/drawn_002`, ... of the run.
        weights: the weight set: `policy`, `ema`, ...
        best: take the best checkpoint by evaluation score instead of the newest one.
        moved: paths by key, where the run's model lies elsewhere now.
    """
    config = sampling_config(located_config(path, moved), prompts, options)
    with restored_run(path, config, best, weights) as (components, evaluator):
        drawn = (RunFolder(path).samples / f"drawn_{number:03d}" for number in range(1, 10**6))
        folder = out or next(free for free in drawn if not free.exists())
        try:  # before what takes long
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            message = f"{folder} can't be written ({error.strerror}); type --out FOLDER"
            raise RunFolderError(message) from error
        texts = [prompt for prompt in prompts for _ in range(count)]
        samples = draw_samples(components, evaluator, texts, seed, weights)
        settings = {"run": str(path), "seed": seed, "weights": weights, "best": best}
        settings |= {name: value for name, value in asdict(options).items() if value is not None}
        with explain_disk_errors(folder, f"samples in {folder}", resumes=False, numbers=OF_DISK):
            if samples.images is not None:
                rows = _write_images(samples.images, samples.frame_rate, texts, folder)
            else:
                rows = _write_texts(samples.texts or [], texts, components.model, folder)
            write_json(folder / "samples.json", {**settings, "samples": rows})
    print(f"{plural(len(texts), 'sample')} in {folder}")


def draw_samples(
    components: Components, evaluator: Evaluator, texts: Sequence[str], seed: int, weights: str
) -> GeneratedSamples:
    """One sample for each text, by the weight set `weights`; `seed` keys the random numbers."""
    with components.model.weights(weights):
        return evaluator.draw([Prompt(text, {}) for text in texts], f"sample/{seed}")


def _write_images(
    images: Tensor, frame_rate: int, texts: Sequence[str], folder: Path
) -> list[dict[str, str]]:
    """Write a file for each image or video, and a grid; returns each one's prompt and file."""
    names = [f"{number:03d}.{'gif' if images.ndim == 5 else 'png'}" for number in range(len(texts))]
    for name, image in zip(names, images, strict=True):
        if image.ndim == 4:
            save_animation(batch_to_pil(image), folder / name, frame_rate)
        else:
            to_pil(image).save(folder / name)
    grid([*beside_sources(images, texts)], texts, folder / "grid.png")
    return [{"prompt": text, "file": name} for text, name in zip(texts, names, strict=True)]


def _write_texts(
    answers: Sequence[str], texts: Sequence[str], model: Any, folder: Path
) -> list[dict[str, str]]:
    """Print answers, and write them to a page; returns each one's prompt, as typed and as given."""
    rows = [
        {"prompt": text, "given": model.as_given(text), "text": answer}
        for text, answer in zip(texts, answers, strict=True)
    ]
    for prompt, group in groupby(rows, key=itemgetter("given")):
        print(printable(f"--- prompt, as the model is given it\n{prompt}"))
        for row in group:
            print(printable(f"--- answer\n{row['text']}"))
    page = "\n\n".join(f"**{plain(row['prompt'])}**\n\n{plain(row['text'])}" for row in rows)
    (folder / "texts.md").write_text(page + "\n", encoding="utf-8")
    return rows


def sampling_config(config: Config, prompts: Sequence[str], options: SamplingOptions) -> Config:
    """A run's configuration for samples of given prompts.

    Neither the run's prompts nor its rewards are built, so their files and networks are not needed.

    Raises:
        PlanError: an option is not one of the run's model.
    """
    is_language = "temperature" in config["dynamics"]
    for name in ("steps", "size", "guidance") if is_language else ("temperature",):
        if getattr(options, name) is not None:
            media = "texts" if is_language else "images"
            raise PlanError([Problem(f"--{name}", f"is no option of a run that makes {media}")])
    own = {"prompts": 1, "noises": 1, "steps": options.steps, "size": options.size}
    evaluation = {name: value for name, value in own.items() if value is not None}
    sampled = {
        **config,
        "prompts": {
            "_target_": "rlfactory.prompts.ops.prompt_list.GivenPrompts",
            "texts": [str(prompt) for prompt in prompts],
            "pictures": [getattr(prompt, "source", None) for prompt in prompts],
        },
        "reward": {"_target_": "rlfactory.reward.none.NoReward"},
        "eval_rewards": {"of": [], "parts": {}},
        "eval_sets": {"of": [], "parts": {}, "rewards": {}, "counts": {}},
        "scoring": {**config["scoring"], "background": "none", "device": None, "offload": False},
        "evaluation": {**config["evaluation"], **evaluation},
    }
    if options.guidance is not None:
        model = config["model"]  # whose network may take the guidance as an input
        name = "guidance" if model.get("embedded_guidance") is None else "embedded_guidance"
        sampled["model"] = {**model, name: options.guidance}
    if options.temperature is not None:
        sampled["dynamics"] = with_temperature(config["dynamics"], options.temperature)
    return sampled


def with_temperature(dynamics: Config, temperature: float) -> Config:
    """Token dynamics at a temperature; at 0 they always take the most likely token."""
    if temperature == 0:
        return {**dynamics, "temperature": 1.0, "top_k": 1, "top_p": 1.0}
    return {**dynamics, "temperature": temperature}
