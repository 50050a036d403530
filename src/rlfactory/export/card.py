"""The model card of an export: what it is, how it was made, and what came of it."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCardData
from huggingface_hub.constants import ENDPOINT

from rlfactory.export.snippet import Snippet
from rlfactory.run.folder import RunFolder
from rlfactory.run.scores import Scores
from rlfactory.run.summary import markdown_table

Config = Mapping[str, Any]

CARD_FILE, CONFIG_FILE, PICTURES = "README.md", "rlfactory.yaml", "pictures"
LORA, MERGED, WHOLE = "LoRA adapters", "merged LoRA adapters", "all weights"


@dataclass(frozen=True)
class Leaving:
    """What is exported: which weights of a run, at which step, in what form.

    `base` is what the run began with, as loaders take it; `hub_id` its name where the hub has it.
    """

    run: RunFolder
    config: Config
    step: int
    weights: str
    form: str
    base: str
    hub_id: str | None
    media: str


def write_card(folder: Path, what: Leaving, snippet: Snippet) -> None:
    """Write README.md, with the run's configuration and its pictures beside it."""
    shutil.copyfile(what.run.config, folder / CONFIG_FILE)
    pictures = _copy_pictures(folder, what)
    choices = what.config["choices"]
    lines = [
        "---",
        _front_matter(what),
        "---",
        "",
        f"# {choices['model']}, tuned by {choices['algo']} for {choices['reward']}",
        "",
        f"{_base(what)}, fine-tuned by reinforcement learning with `rlfactory`"
        f" ({what.form}; the `{what.weights}` weights after {what.step} iterations).",
        "",
        "## Use",
        "",
        "```python",
        snippet.code,
        "```",
        "",
        *(f"- {note}" for note in _notes(what, snippet)),
        "",
        "## Before and after",
        "",
        *_scores(what),
        "",
        *pictures,
        "## How it was made",
        "",
        *_origin(what),
        "",
        "<details><summary>Configuration</summary>",
        "",
        "```yaml",
        what.run.config.read_text(encoding="utf-8").rstrip(),
        "```",
        "",
        "</details>",
    ]
    (folder / CARD_FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _front_matter(what: Leaving) -> str:
    of_texts = what.media == "texts"
    adapters = what.form == LORA
    library = "diffusers"
    if of_texts:
        library = "peft" if adapters else "transformers"
    data = ModelCardData(
        base_model=what.hub_id,
        library_name=library,
        pipeline_tag="text-generation" if of_texts else "text-to-image",
        tags=[
            "rlfactory",
            "reinforcement-learning",
            what.config["choices"]["algo"],
            *(["lora"] if what.form in (LORA, MERGED) else []),
        ],
    )
    return str(data.to_yaml())


def _notes(what: Leaving, snippet: Snippet) -> list[str]:
    notes = list(snippet.notes)
    if what.form == LORA and what.media == "images":
        part = "unet" if what.config["model"]["_target_"].endswith(".SD") else "transformer"
        notes.append(f"PEFT opens the same folder: `PeftModel.from_pretrained(pipe.{part}, PATH)`.")
    if what.form != LORA:
        notes.append("All parts are in float32; pass `dtype=torch.bfloat16` for half the memory.")
    if what.form != LORA and what.config["model"]["_target_"].endswith(".SD"):
        notes.append("The pipeline has no safety checker, as none was loaded in training.")
    return notes


def _scores(what: Leaving) -> list[str]:
    first, last = what.run.evaluation(0), what.run.evaluation(what.step)
    if not (first.is_file() and last.is_file() and what.step):
        return ["These weights were not evaluated in the run."]
    lines = markdown_table(Scores.load(first), Scores.load(last))
    measured = what.config["evaluation"]["weights"]
    if measured != what.weights:
        lines += ["", f"Measured with the `{measured}` weights, not with these."]
    return lines


def _copy_pictures(folder: Path, what: Leaving) -> list[str]:
    """The pages and pictures of the samples, copied, and the lines that show them."""
    strip, grid = what.run.strip, what.run.grid(what.step)
    lines = []
    for title, picture in (
        ("The same prompts over training", strip),
        (f"Held-out prompts after {what.step} iterations", grid),
    ):
        for path in (picture, picture.with_suffix(".md")):
            if path.is_file():
                (folder / PICTURES).mkdir(exist_ok=True)
                shutil.copyfile(path, folder / PICTURES / path.name)
                mark = "!" if path.suffix == ".png" else ""
                lines += [f"{mark}[{title}]({PICTURES}/{path.name})", ""]
    return lines


def _origin(what: Leaving) -> list[str]:
    config, choices = what.config, what.config["choices"]
    source = config["prompts"].get("path")
    asked = f"`{choices['prompts']}`" + (f" (`{source}`)" if source else "")
    samples = config["prompts_per_iteration"] * config["group_size"]
    lines = [
        f"- base: {_base(what)}",
        f"- prompts: {asked}; reward: `{choices['reward']}`",
        f"- algorithm: `{choices['algo']}` with `{choices['dynamics']}` and"
        f" `{choices['regularizer']}`, {what.step} iterations of {samples} samples,"
        f" seed {config['seed']}",
    ]
    if what.run.command.is_file():
        command = what.run.command.read_text(encoding="utf-8").strip()
        lines.append(f"- command: `{command}`")
    return [*lines, f"- all that was set: [{CONFIG_FILE}]({CONFIG_FILE})"]


def _base(what: Leaving) -> str:
    if what.hub_id is None:
        return f"`{what.config['model']['path']}`"
    return f"[{what.hub_id}]({ENDPOINT}/{what.hub_id})"
