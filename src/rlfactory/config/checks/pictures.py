"""Rules on prompts with pictures: they go with the model, and their files are there and fit."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlfactory.config.checks.base import Config, Traits
from rlfactory.config.checks.prompt_files import known_rows
from rlfactory.config.problems import Problem, closest
from rlfactory.config.prompt_data import prompt_head
from rlfactory.model.pipelines.local_models import height_and_width

EDITING, EDITS = "model=flux_kontext", "prompts=edits"
"""A model that edits pictures, and prompts that have some."""


def require_matching_pictures(config: Config, traits: Traits) -> Iterator[Problem]:
    """Prompts have pictures exactly if the model edits them."""
    takes, having = bool(traits["model"].get("pictures")), _have_pictures(config, traits)
    if having is None or takes == having:
        return
    column = config["prompts"].get("image_column")
    if takes:
        message = "have no pictures, and this model edits pictures; give each prompt one"
        is_set = "column" in config["prompts"] and column is None
        fix = "prompts.image_column=image" if is_set else EDITS
        yield Problem("prompts", message, fix)
        return
    fix = EDITING if column is None else "prompts.image_column=null"
    message = f"have pictures to be edited, and this model takes none; {EDITING} does"
    yield Problem("prompts", message, fix)


def _have_pictures(config: Config, traits: Traits) -> bool | None:
    """Whether prompts have pictures; None where only loading the data can say."""
    declared = traits["prompts"].get("pictures", False)
    if declared is not None:
        return bool(declared)
    column, rows = config["prompts"].get("image_column"), known_rows(config, traits)
    if column is None and "image_column" in config["prompts"]:
        return False
    if rows is None or not rows.rows:
        return None
    return any(row.get(column) is not None for row in rows.rows)


def require_readable_pictures(config: Config, traits: Traits) -> Iterator[Problem]:
    """Each line of a prompt file has a picture, which can be read and has the model's shape."""
    column = config["prompts"].get("image_column")
    if not traits["model"].get("pictures") or column is None:
        return
    size = height_and_width(config["model"]["size"])
    for name in traits["prompts"].get("prompt_files", ()):
        value = config["prompts"].get(name)
        if not isinstance(value, str):
            continue
        path = Path(value).expanduser()
        for number, row in enumerate(prompt_head(config["prompts"], name).rows, start=1):
            if problem := _row_problem(row, column, path, size):
                message, fix = problem
                yield Problem(f"prompts.{name}", f"{value}, prompt {number}: {message}", fix)
                return


def _row_problem(
    row: Mapping[str, Any], column: str, path: Path, size: tuple[int, int]
) -> tuple[str, str] | None:
    """What is wrong with the picture of a row, and what to type, if anything."""
    if row.get(column) is None:
        guess = closest(column, [*row]) if len(row) > 1 else None
        fix = f"prompts.image_column={guess}" if guess else ""
        return f"has no picture under {column}, and this model edits pictures", fix
    return unfitting_picture(row[column], path.parent, size)


def unfitting_picture(
    picture: object, folder: Path, size: tuple[int, int] | None
) -> tuple[str, str] | None:
    """What is wrong with a picture, and what to type, if anything; None where it fits.

    Args:
        picture: in any form that `prompts.ops.pictured.pictured` takes.
        folder: what its path is relative to.
        size: height and width of what the model makes; None: any.
    """
    # Pillow takes a while to import
    from rlfactory.prompts.ops.pictured import unfitting

    if (found := unfitting(picture, folder, size)) is None:
        return None
    problem, fitting = found
    return problem, f"model.size=[{fitting[0]},{fitting[1]}]" if fitting else ""
