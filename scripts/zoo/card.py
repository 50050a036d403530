"""The model card of an image model: scores, and a grid of samples."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rlfactory.config.overrides import plan_from_words
from rlfactory.report.image_grid import grid
from rlfactory.run.scores import Scores
from rlfactory.train.build import build
from rlfactory.train.components import NoProgress
from rlfactory.train.evaluation.build import build_evaluator
from rlfactory.train.evaluation.evaluator import Evaluation


def evaluate(out: Path, *words: str) -> Evaluation:
    """The saved pipeline on the held-out prompts that every run of `rlfactory WORDS` is
    evaluated on.
    """
    config = plan_from_words(*words, f"model.path={out.absolute()}").config
    return build_evaluator(config, build(config), NoProgress())("policy")


def draw_grid(evaluation: Evaluation, path: Path, count: int = 12) -> None:
    """A grid of its first images with prompts and soft scores, framed green if all is right."""
    images, scores = evaluation.samples.images, evaluation.scores
    assert images is not None
    shown = scores.values["shapes"][:count].tolist()
    grid(images[:count], scores.prompts[:count], path, scores=shown, good=1.0)


def write_card(
    out: Path, scores: Scores, about: Sequence[str], recipe: dict[str, int], sampled: str
) -> None:
    """Write a README: what the model is, how it was trained, its scores."""
    soft, strict = scores.values["shapes"], scores.values["shapes_strict"]
    rows = [("all", np.ones(len(soft), bool)), *scores.category_masks().items()]
    table = [f"| {name} | {soft[m].mean():.3f} | {strict[m].mean():.3f} |" for name, m in rows]
    made = ", ".join(f"{name} {value:,}" for name, value in recipe.items())
    lines = [
        f"# {out.name}",
        "",
        *about,
        "",
        f"Made with: {made}.",
        "",
        f"Scores on 256 held-out prompts, {sampled}:",
        "",
        "| category | soft | strict |",
        "|---|---:|---:|",
        *table,
    ]
    (out / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
