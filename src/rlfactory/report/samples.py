"""What people look at: each row's pictures, and what its model wrote before and after."""

import json
from collections.abc import Iterable
from pathlib import Path

from rlfactory.report.group import Group
from rlfactory.report.report import Picture, TextSample
from rlfactory.run.folder import RunFolder

_TEXTS = 4


def pictures(groups: Iterable[Group]) -> list[Picture]:
    """The same prompts over training, and the last samples, of each row's first run."""
    return [
        picture
        for group in groups
        if group.runs and not group.untrained
        for picture in _of(group.name, group.runs[0].path, group.runs[0].seed)
    ]


def _of(row: str, path: Path, seed: int) -> list[Picture]:
    folder = RunFolder(path)
    grids = sorted(folder.samples.glob("eval_*.png"))
    found = [(folder.strip, f"the same prompts over training, seed {seed}")]
    if grids:
        iteration = int(grids[-1].stem.removeprefix("eval_"))
        found.append((grids[-1], f"samples after {iteration} iterations, seed {seed}"))
    return [Picture(row, caption, place) for place, caption in found if place.is_file()]


def texts(groups: Iterable[Group]) -> list[TextSample]:
    """The first responses of each row's first run; none of what can't be read."""
    return [
        TextSample(group.name, prompt, before, after)
        for group in groups
        if group.runs and not group.untrained
        for prompt, before, after in responses(group.runs[0].path)[:_TEXTS]
    ]


def responses(path: Path) -> list[tuple[str, str, str]]:
    """A run's first held-out prompts, what it wrote before training, and what at its end."""
    kept = sorted((RunFolder(path).samples / "strip").glob("*.json"))
    try:
        moments = [json.loads(p.read_text(encoding="utf-8")) for p in (kept[0], kept[-1])]
        prompts = prompts_of(path)
    except (OSError, ValueError, LookupError, TypeError):
        return []
    return [(p, str(b), str(a)) for p, b, a in zip(prompts, *moments, strict=False)]


def prompts_of(path: Path) -> list[str]:
    """The held-out prompts."""
    text = RunFolder(path).evaluation(0).read_text(encoding="utf-8")
    return [str(prompt) for prompt in json.loads(text)["prompts"]]
