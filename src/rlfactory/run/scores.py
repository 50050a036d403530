"""The scores of one evaluation: a fixed set of prompts, and what each picture or text got."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rlfactory.run.atomic import write_text


@dataclass(frozen=True)
class Scores:
    """N prompts with `values[name]` `[N]` (NaN = could not be scored).

    `categories` names each prompt's kind, or is None. `diversity` is the mean pairwise distance
    between samples of one prompt, `kl` the divergence from the reference in nats a token; NaN where
    they were not measured.
    """

    prompts: list[str]
    values: dict[str, NDArray[np.float64]]
    categories: list[str] | None = None
    diversity: float = float("nan")
    kl: float = float("nan")

    def __post_init__(self) -> None:
        """ValueError unless everything has one entry per prompt."""
        lengths = {name: len(array) for name, array in self.values.items()}
        if self.categories is not None:
            lengths["categories"] = len(self.categories)
        wrong = {name: length for name, length in lengths.items() if length != len(self.prompts)}
        if wrong:
            raise ValueError(f"{len(self.prompts)} prompts, but the lengths are {wrong}")

    def means(self) -> dict[str, float]:
        """The mean of each score over the prompts that could be scored."""
        return {name: _mean(array) for name, array in self.values.items()}

    def parts(self) -> dict[str, NDArray[np.bool_]]:
        """Each category, in order of first appearance, with the mask `[N]` of its prompts."""
        kinds = np.array(self.categories or [])
        return {kind: kinds == kind for kind in dict.fromkeys(self.categories or [])}

    def save(self, path: Path) -> None:
        """Write as JSON, NaN as null, making the folder if need be."""
        scores = {name: [_plain(x) for x in array] for name, array in self.values.items()}
        content = {
            "diversity": _plain(self.diversity),
            "kl": _plain(self.kl),
            "prompts": self.prompts,
            "categories": self.categories,
            "scores": scores,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(content, ensure_ascii=False, allow_nan=False, indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> "Scores":
        """Read what `save` wrote, exactly."""
        content = json.loads(path.read_text(encoding="utf-8"))
        # numpy reads None as NaN when it is told that these are floats
        values = {k: np.array(v, dtype=np.float64) for k, v in content["scores"].items()}
        return cls(
            prompts=content["prompts"],
            values=values,
            categories=content["categories"],
            diversity=_number(content["diversity"]),
            kl=_number(content.get("kl")),
        )


def _mean(array: NDArray[np.float64]) -> float:
    scored = array[~np.isnan(array)]
    return float(scored.mean()) if len(scored) else float("nan")


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def _plain(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
