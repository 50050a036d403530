"""The scores of an evaluation, a fixed set of prompts, and all evaluations in a run folder."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from rlfactory.run.atomic_write import write_json
from rlfactory.run.folder import RunFolder
from rlfactory.utils.data_files import FileError, read_json

REMEDY = "remove it, or restore it from a copy"


class _Content(TypedDict):
    """The content of a file of scores; those of older versions have fewer keys."""

    prompts: list[str]
    scores: dict[str, list[float | None]]
    categories: list[str] | None
    diversity: float | None
    kl: NotRequired[float | None]
    texts: NotRequired[dict[str, float | None]]
    better: NotRequired[dict[str, str]]
    separate: NotRequired[bool]
    noises: NotRequired[int]


@dataclass(frozen=True)
class Scores:
    """The prompts and the scores of N samples.

    Attributes:
        prompts: the prompt of each sample: all prompts in one order, K times.
        values: `[N]` by score name; NaN could not be scored.
        categories: each prompt's category, or None.
        diversity: mean pairwise distance between samples of one prompt; NaN if not measured.
        kl: divergence from the reference in nats a token; NaN if not measured.
        texts: further means over responses, by the names under `eval/text/`; empty for images.
        better: whether higher or lower is better, by score name, as far as it is known.
        separate: whether none of the prompts is trained on.
        noises: K.
    """

    prompts: list[str]
    values: dict[str, NDArray[np.float64]]
    categories: list[str] | None = None
    diversity: float = float("nan")
    kl: float = float("nan")
    texts: dict[str, float] = field(default_factory=dict)
    better: dict[str, str] = field(default_factory=dict)
    separate: bool = False
    noises: int = 1

    def __post_init__(self) -> None:
        """ValueError unless all have one entry per prompt."""
        lengths = {name: len(array) for name, array in self.values.items()}
        if self.categories is not None:
            lengths["categories"] = len(self.categories)
        wrong = {name: length for name, length in lengths.items() if length != len(self.prompts)}
        if wrong:
            raise ValueError(f"{len(self.prompts)} prompts, but the lengths are {wrong}")
        if self.noises < 1 or len(self.prompts) % self.noises:
            raise ValueError(f"{len(self.prompts)} samples, {self.noises} of each prompt")

    def means(self) -> dict[str, float]:
        """The mean of each score over the prompts that could be scored."""
        return {name: _mean(array) for name, array in self.values.items()}

    def by_prompt(self, name: str) -> NDArray[np.float64]:
        """A score's mean over the samples of each prompt, `[N / K]`; NaN if none was scored.

        Samples of one prompt are not independent, so that intervals are over these means.
        """
        values = self.values[name].reshape(self.noises, -1)
        scored = ~np.isnan(values)
        total, count = np.where(scored, values, 0.0).sum(0), scored.sum(0)
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)

    def category_masks(self) -> dict[str, NDArray[np.bool_]]:
        """The mask `[N]` of each category's samples, in order of first appearance."""
        kinds = np.array(self.categories or [])
        return {kind: kinds == kind for kind in dict.fromkeys(self.categories or [])}

    def save(self, path: Path) -> None:
        """Write as JSON, NaN as null; makes the folder if needed."""
        content = {
            "diversity": _plain(self.diversity),
            "kl": _plain(self.kl),
            "texts": self.texts,
            "separate": self.separate,
            "noises": self.noises,
            "prompts": self.prompts,
            "categories": self.categories,
            "better": self.better,
            "scores": {name: [_plain(x) for x in own] for name, own in self.values.items()},
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, content, allow_nan=False)

    @classmethod
    def load(cls, path: Path) -> "Scores":
        """Read what `save` wrote, equal to the last bit.

        Raises:
            FileNotFoundError: there is none.
            FileError: it is no file of scores.
        """
        content = dict(read_json(path, _Content, remedy=REMEDY))
        # as float64, numpy reads None as NaN
        scores, texts = content.pop("scores"), content.get("texts", {})
        values = {name: np.array(numbers, dtype=np.float64) for name, numbers in scores.items()}
        ends = {name: _number(content.get(name)) for name in ("diversity", "kl")}
        content |= {**ends, "texts": {name: _number(mean) for name, mean in texts.items()}}
        known = {f.name for f in fields(cls)}
        try:
            return cls(values=values, **{k: v for k, v in content.items() if k in known})
        except ValueError as error:
            raise FileError(path, str(error), REMEDY) from error


def _mean(array: NDArray[np.float64]) -> float:
    scored = array[~np.isnan(array)]
    return float(scored.mean()) if len(scored) else float("nan")


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def _plain(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


SetPairs = Mapping[str, tuple[Scores, Scores | None]]
"""The first and the last scores of each prompt set; None where there is no pair of them."""


def read_evaluations(folder: RunFolder) -> dict[int, Scores]:
    """The scores of a folder's evaluations in training by iteration, those that can be read."""
    found = {}
    for path in folder.evaluations.glob("*.json"):
        if path.stem.isdecimal():
            with suppress(FileError, FileNotFoundError):
                found[int(path.stem)] = Scores.load(path)
    return dict(sorted(found.items()))


def read_sets(folder: RunFolder) -> dict[str, dict[int, Scores]]:
    """The same of each prompt set that was evaluated in training, as `evaluated_sets` names it."""
    sets = {name: read_evaluations(own) for name, own in folder.evaluated_sets().items()}
    return {name: evaluations for name, evaluations in sets.items() if evaluations}


def set_pairs(sets: Mapping[str, Mapping[int, Scores]], until: int | None = None) -> SetPairs:
    """Each set's first scores and its last ones, or those after `until` iterations."""
    pairs = {}
    for name, evaluations in sets.items():
        first, last = min(evaluations), max(evaluations) if until is None else until
        before, after = evaluations[first], evaluations.get(last) if last != first else None
        is_paired = after is not None and after.prompts == before.prompts
        pairs[name] = before, after if is_paired else None
    return pairs
