"""The model card of an export: how to load it, its scores and images, and how it was trained."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import ModelCard, ModelCardData
from huggingface_hub.constants import ENDPOINT

from rlfactory.report.labels import evaluation_label
from rlfactory.report.summary import score_sections
from rlfactory.report.text_table import markdown_sections
from rlfactory.run.folder import RunFolder
from rlfactory.run.loggers.base import logger_links
from rlfactory.run.scores import Scores, read_sets, set_pairs
from rlfactory.tools.export.base_model import BaseModel, command_without_folders, without_folders
from rlfactory.tools.export.snippet import Snippet
from rlfactory.utils.data_files import load_yaml, read_shown
from rlfactory.utils.text import fenced, plural

Config = Mapping[str, Any]

CARD_FILE, CONFIG_FILE, PICTURES = "README.md", "rlfactory.yaml", "pictures"
TEMPLATE = Path(__file__).with_name("card.md")
LORA, MERGED, FULL = "LoRA adapters", "merged LoRA adapters", "all weights"


@dataclass(frozen=True)
class ExportInfo:
    """Facts on the export.

    Attributes:
        step: the checkpoint's number of iterations.
        form: `LORA`, `MERGED` or `FULL`.
        base: the model that the run started from.
        media: `images`, `videos` or `texts`.
        pictures: whether each prompt has a picture.
        networks: the components that are trained or carry adapters, by their names in the pipeline.
        file: the file of LoRA adapters that is not for diffusers alone; None without one.
    """

    run: RunFolder
    config: Config
    step: int
    weights: str
    form: str
    base: BaseModel
    media: str
    pictures: bool = False
    networks: Sequence[str] = ()
    file: str | None = None


def write_card(folder: Path, info: ExportInfo, snippet: Snippet, notes: Sequence[str] = ()) -> None:
    """Write README.md, the run's configuration, and the folder of images that it shows.

    No path of this machine is in them: only the names of its files and folders.
    """
    content = without_folders(load_yaml(info.run.config.read_text(encoding="utf-8")))
    config = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    (folder / CONFIG_FILE).write_text(config, encoding="utf-8")
    hub_id, command = info.base.hub_id, read_shown(info.run.command).strip()
    card = ModelCard.from_template(
        _card_data(info),
        template_path=str(TEMPLATE),
        info=info,
        done=plural(info.step, "iteration"),
        choices=info.config["choices"],
        base=f"[{hub_id}]({ENDPOINT}/{hub_id})" if hub_id else f"`{info.base.name}`",
        code=snippet.code,
        notes=[*notes, *snippet.notes, *_notes(info)],
        scores=_scores(info),
        folder=PICTURES,
        pictures=_copy_images(folder, info),
        source=without_folders(info.config["prompts"].get("path")),
        samples=info.config["prompts_per_iteration"] * info.config["group_size"],
        command=fenced(command_without_folders(command)) if command else "",
        links=logger_links(info.run.path),
        config_file=CONFIG_FILE,
        config=fenced(f"yaml\n{config}", 3),
    )
    (folder / CARD_FILE).write_text(f"{card}\n", encoding="utf-8")


def _card_data(info: ExportInfo) -> ModelCardData:
    library = "diffusers"
    task = f"{'image' if info.pictures else 'text'}-to-{info.media.removesuffix('s')}"
    if info.media == "texts":
        library, task = "peft" if info.form == LORA else "transformers", "text-generation"
    tags = ["rlfactory", "reinforcement-learning", info.config["choices"]["algo"]]
    tags += ["lora"] if info.form in (LORA, MERGED) else []
    base = info.base.hub_id
    return ModelCardData(base_model=base, library_name=library, pipeline_tag=task, tags=tags)


def _notes(info: ExportInfo) -> list[str]:
    if info.form != LORA:
        notes = ["All parts are in float32; pass `dtype=torch.bfloat16` for half the memory."]
        checker = "The pipeline has no safety checker, as none was loaded in training."
        return [*notes, *([checker] if info.config["model"]["_target_"].endswith(".SD") else [])]
    if info.file is not None:
        return [f"ComfyUI reads `{info.file}` from its folder `models/loras`."]
    places = {n: f", subfolder={n!r}" if len(info.networks) > 1 else "" for n in info.networks}
    calls = [f"`PeftModel.from_pretrained(pipe.{n}, PATH{own})`" for n, own in places.items()]
    return [] if info.media == "texts" else [f"PEFT opens the same folder: {', '.join(calls)}."]


def _scores(info: ExportInfo) -> list[str]:
    pairs = set_pairs(read_sets(info.run), info.step)
    evaluated = {name: pair for name, pair in pairs.items() if pair[1]}
    if "" not in evaluated:
        return ["These weights were not evaluated in the run."]
    lines = markdown_sections(score_sections(evaluated), "###")
    measured = info.config["evaluation"]["weights"]
    if measured != info.weights:
        lines += ["", f"Measured with the `{measured}` weights, not with these."]
    return lines


def _copy_images(folder: Path, info: ExportInfo) -> list[tuple[str, str]]:
    """Copy the images and pages of samples; returns their titles and names."""
    first = info.run.evaluation(0)
    label = evaluation_label([Scores.load(first)] if first.is_file() else [])
    images = {
        "The same prompts over training": info.run.strip,
        f"{label.capitalize()} after {plural(info.step, 'iteration')}": info.run.grid(info.step),
    }
    files = [(t, path) for t, image in images.items() for path in (image, image.with_suffix(".md"))]
    found = [(title, path) for title, path in files if path.is_file()]
    for _, path in found:
        (folder / PICTURES).mkdir(exist_ok=True)
        shutil.copyfile(path, folder / PICTURES / path.name)
    return [(title, path.name) for title, path in found]
