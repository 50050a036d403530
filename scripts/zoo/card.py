"""What a finished recipe of images leaves beside the weights: a card with scores, a grid."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rlfactory.build import build, evaluator
from rlfactory.parts import Silent
from rlfactory.request import planned
from rlfactory.run.evaluation import Evaluation
from rlfactory.run.pictures import grid
from rlfactory.run.scores import Scores


def evaluate(out: Path, *words: str) -> Evaluation:
    """The saved pipeline on the held-out prompts that every run of `rlfactory WORDS` is
    evaluated on.
    """
    config = planned(*words, f"model.path={out.absolute()}").config
    return evaluator(config, build(config), Silent())("policy")


def draw_grid(evaluation: Evaluation, path: Path, count: int = 12) -> None:
    """Its first pictures above their prompts and soft scores, framed green where all is right."""
    images, scores = evaluation.samples.images, evaluation.scores
    assert images is not None
    shown = scores.values["shapes"][:count].tolist()
    grid(images[:count], scores.prompts[:count], path, scores=shown, good=1.0)


def write_card(
    out: Path, scores: Scores, about: Sequence[str], recipe: dict[str, int], sampled: str
) -> None:
    """What the weights are, how they were made, and how good they are, in a README."""
    soft, strict = scores.values["shapes"], scores.values["shapes_strict"]
    rows = [("all", np.ones(len(soft), bool)), *scores.parts().items()]
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
