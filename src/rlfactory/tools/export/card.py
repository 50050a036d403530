"""The model card of an export: how to load it, its scores and images, and how it was trained."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import ModelCardData
from huggingface_hub.constants import ENDPOINT

from rlfactory.report.labels import evaluation_label
from rlfactory.report.summary import markdown_table, set_sections
from rlfactory.run.folder import RunFolder
from rlfactory.run.loggers.base import logger_links
from rlfactory.run.scores import Scores, read_sets, set_pairs
from rlfactory.tools.export.base_model import BaseModel, command_without_folders, without_folders
from rlfactory.tools.export.snippet import Snippet
from rlfactory.utils.data_files import read_shown

Config = Mapping[str, Any]

CARD_FILE, CONFIG_FILE, PICTURES = "README.md", "rlfactory.yaml", "pictures"
LORA, MERGED, FULL = "LoRA adapters", "merged LoRA adapters", "all weights"


@dataclass(frozen=True)
class ExportInfo:
    """What is exported.

    Attributes:
        run: the run folder.
        config: its frozen configuration.
        step: the checkpoint's number of iterations.
        weights: the weight set.
        form: `LORA`, `MERGED` or `FULL`.
        base: the model that the run started from.
        media: `images` or `texts`.
        file: the file of LoRA adapters that is not for diffusers alone; None without one.
    """

    run: RunFolder
    config: Config
    step: int
    weights: str
    form: str
    base: BaseModel
    media: str
    file: str | None = None


def write_card(folder: Path, info: ExportInfo, snippet: Snippet, notes: Sequence[str] = ()) -> None:
    """Write README.md, the run's configuration, and the folder of images that it shows.

    No path of this machine is in them: only the names of its files and folders.
    """
    text = info.run.config.read_text(encoding="utf-8")
    config = yaml.safe_dump(
        without_folders(yaml.safe_load(text)), sort_keys=False, allow_unicode=True
    )
    (folder / CONFIG_FILE).write_text(config, encoding="utf-8")
    images = _copy_images(folder, info)
    choices = info.config["choices"]
    lines = [
        "---",
        _front_matter(info),
        "---",
        "",
        f"# {choices['model']}, tuned by {choices['algo']} for {choices['reward']}",
        "",
        f"{_base(info)}, fine-tuned by reinforcement learning with `rlfactory`"
        f" ({info.form}; the `{info.weights}` weights after {info.step} iterations).",
        "",
        "## Use",
        "",
        "```python",
        snippet.code,
        "```",
        "",
        *(f"- {note}" for note in [*notes, *_notes(info, snippet)]),
        "",
        "## Before and after",
        "",
        *_scores(info),
        "",
        *images,
        "## How it was made",
        "",
        *_origin(info),
        "",
        "<details><summary>Configuration</summary>",
        "",
        "```yaml",
        config.rstrip(),
        "```",
        "",
        "</details>",
    ]
    (folder / CARD_FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _front_matter(info: ExportInfo) -> str:
    is_text = info.media == "texts"
    adapters = info.form == LORA
    library = "diffusers"
    if is_text:
        library = "peft" if adapters else "transformers"
    data = ModelCardData(
        base_model=info.base.hub_id,
        library_name=library,
        pipeline_tag="text-generation" if is_text else "text-to-image",
        tags=[
            "rlfactory",
            "reinforcement-learning",
            info.config["choices"]["algo"],
            *(["lora"] if info.form in (LORA, MERGED) else []),
        ],
    )
    return str(data.to_yaml())


def _notes(info: ExportInfo, snippet: Snippet) -> list[str]:
    notes = list(snippet.notes)
    if info.form == LORA and info.media == "images":
        part = "unet" if info.config["model"]["_target_"].endswith(".SD") else "transformer"
        if info.file is None:
            notes.append(
                f"PEFT opens the same folder: `PeftModel.from_pretrained(pipe.{part}, PATH)`."
            )
        else:
            notes.append(f"ComfyUI reads `{info.file}` from its folder `models/loras`.")
    if info.form != LORA:
        notes.append("All parts are in float32; pass `dtype=torch.bfloat16` for half the memory.")
    if info.form != LORA and info.config["model"]["_target_"].endswith(".SD"):
        notes.append("The pipeline has no safety checker, as none was loaded in training.")
    return notes


def _scores(info: ExportInfo) -> list[str]:
    first, last = info.run.evaluation(0), info.run.evaluation(info.step)
    if not (first.is_file() and last.is_file() and info.step):
        return ["These weights were not evaluated in the run."]
    lines = markdown_table(Scores.load(first), Scores.load(last))
    pairs = set_pairs(read_sets(info.run), info.step)
    lines += set_sections({name: pair for name, pair in pairs.items() if pair[1]}, "###")
    measured = info.config["evaluation"]["weights"]
    if measured != info.weights:
        lines += ["", f"Measured with the `{measured}` weights, not with these."]
    return lines


def _copy_images(folder: Path, info: ExportInfo) -> list[str]:
    """Copy the images and pages of samples; returns the lines that show them."""
    strip, grid = info.run.strip, info.run.grid(info.step)
    lines = []
    first = info.run.evaluation(0)
    label = evaluation_label(first.is_file() and Scores.load(first).separate)
    for title, image in (
        ("The same prompts over training", strip),
        (f"{label.capitalize()} after {info.step} iterations", grid),
    ):
        for path in (image, image.with_suffix(".md")):
            if path.is_file():
                (folder / PICTURES).mkdir(exist_ok=True)
                shutil.copyfile(path, folder / PICTURES / path.name)
                mark = "!" if path.suffix == ".png" else ""
                lines += [f"{mark}[{title}]({PICTURES}/{path.name})", ""]
    return lines


def _origin(info: ExportInfo) -> list[str]:
    config, choices = info.config, info.config["choices"]
    source = without_folders(config["prompts"].get("path"))
    prompts = f"`{choices['prompts']}`" + (f" (`{source}`)" if source else "")
    samples = config["prompts_per_iteration"] * config["group_size"]
    lines = [
        f"- base: {_base(info)}",
        f"- prompts: {prompts}; reward: `{choices['reward']}`",
        f"- algorithm: `{choices['algo']}` with `{choices['dynamics']}` and"
        f" `{choices['regularizer']}`, {info.step} iterations of {samples} samples,"
        f" seed {config['seed']}",
    ]
    if command := read_shown(info.run.command).strip():
        lines.append(f"- command: `{command_without_folders(command)}`")
    links = [f"- metrics: [{name}]({url})" for name, url in logger_links(info.run.path).items()]
    return [*lines, *links, f"- configuration: [{CONFIG_FILE}]({CONFIG_FILE})"]


def _base(info: ExportInfo) -> str:
    hub_id = info.base.hub_id
    return f"`{info.base.name}`" if hub_id is None else f"[{hub_id}]({ENDPOINT}/{hub_id})"
