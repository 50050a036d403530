"""Does the picture show what the prompt says? GenEval's score, detector and colours."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from math import nan
from typing import Any, Literal

import torch
from torch import Tensor

from rlfactory.prompts.base import Prompt
from rlfactory.reward.base import Reward, RewardError, Samples, pictures
from rlfactory.reward.geneval import Detection, RelationCredit, soft_score, strict_score
from rlfactory.reward.geneval_color import ColorNamer
from rlfactory.reward.geneval_detector import Detector, Instance
from rlfactory.reward.geneval_metadata import fault
from rlfactory.types import BelowOne, PositiveInt

log = logging.getLogger(__name__)


class GenEval(Reward):
    """`geneval`: the soft score in [0, 1]; `geneval_strict`: 1 if all is right, otherwise 0.

    `path` is a Mask2Former of instances, `clip_path` a CLIP. NaN where a prompt's metadata can't be
    judged. Source: Ghosh et al. 2023; soft: Liu et al. 2025.
    """

    media = "images"
    metadata = ("tag", "include")
    main = "geneval"
    good = 1.0

    def __init__(
        self,
        device: torch.device,
        *,
        path: str = "facebook/mask2former-swin-small-coco-instance",
        clip_path: str = "openai/clip-vit-large-patch14",
        relation_credit: Literal["none", "flow_grpo"] = "none",
        threshold: BelowOne = 0.3,
        counting_threshold: BelowOne = 0.9,
        max_objects: PositiveInt = 16,
        side: PositiveInt = 800,
        dtype: Literal["float32", "float16", "bfloat16"] = "float32",
        batch_size: PositiveInt = 8,
    ) -> None:
        self.relation_credit: RelationCredit = relation_credit
        self.threshold = threshold
        self.counting_threshold = counting_threshold
        self.max_objects = max_objects
        self.batch_size = batch_size
        precision = getattr(torch, dtype)
        self.detect = Detector(path, device, dtype=precision, side=side)
        self.name_colors = ColorNamer(clip_path, device, dtype=precision)

    def require(self, prompts: Iterable[Prompt]) -> None:
        """RewardError naming the first prompt whose metadata can't be judged."""
        for prompt in prompts:
            if wrong := fault(prompt.metadata, self.detect.names):
                raise RewardError(
                    f"reward=geneval can't judge the prompt {prompt.text!r}: {wrong}; take"
                    " GenEval's own file (prompts=file prompts.path=evaluation_metadata.jsonl)"
                )

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]` of what the detector finds."""
        images = pictures(samples)
        least = min(self.threshold, self.counting_threshold)
        grades: list[tuple[float, float]] = []
        for start in range(0, len(images), self.batch_size):
            rows = slice(start, start + self.batch_size)
            found = self.detect(images[rows], least)
            batch = zip(images[rows], found, samples.metadata[rows], strict=True)
            grades += [self._grade(*one) for one in batch]
        soft, strict = torch.tensor(grades, dtype=torch.float32).reshape(-1, 2).unbind(1)
        return {"geneval": soft.contiguous(), "geneval_strict": strict.contiguous()}

    def _grade(
        self, image: Tensor, found: Sequence[Instance], wanted: Mapping[str, Any]
    ) -> tuple[float, float]:
        if wrong := fault(wanted, self.detect.names):
            log.error("reward geneval: %s", wrong)
            return nan, nan
        counting = wanted["tag"] == "counting"
        threshold = self.counting_threshold if counting else self.threshold
        kept = most_certain(found, threshold, self.max_objects)
        colored = {clause["class"] for clause in wanted["include"] if "color" in clause}
        objects = [
            detection
            for name, group in groupby(kept, key=lambda item: item.name)
            for detection in self._detections(image, list(group), name in colored)
        ]
        soft = soft_score(objects, wanted, relation_credit=self.relation_credit)
        return soft, strict_score(objects, wanted)

    def _detections(
        self, image: Tensor, items: Sequence[Instance], colored: bool
    ) -> list[Detection]:
        """Objects of one class, with colours only where one is asked for."""
        colors = self.name_colors(image, items) if colored else [None] * len(items)
        pairs = zip(items, colors, strict=True)
        return [Detection(item.name, color, item.box) for item, color in pairs]


def most_certain(found: Sequence[Instance], threshold: float, most: int) -> list[Instance]:
    """At most `most` instances of each class above a certainty, class by class, the most certain
    of a class first.
    """
    certain = sorted(
        (item for item in found if item.certainty > threshold),
        key=lambda item: (item.name, -item.certainty),
    )
    classes = groupby(certain, key=lambda item: item.name)
    return [item for _, group in classes for item in list(group)[:most]]
