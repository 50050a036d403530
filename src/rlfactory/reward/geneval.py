"""GenEval (Ghosh et al. 2023) as a reward: objects by Mask2Former, their colours by CLIP."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from math import nan
from typing import Any, Literal

import torch
from torch import Tensor

from rlfactory.prompts.base import Prompt
from rlfactory.prompts.ops.geneval_metadata import metadata_problem
from rlfactory.reward.backbones.geneval import ColorNamer, Detector, Instance
from rlfactory.reward.base import Reward, RewardError, Samples, require_images
from rlfactory.reward.ops.geneval_score import Detection, RelationCredit, soft_score, strict_score
from rlfactory.utils.types import BelowOne, PositiveInt

log = logging.getLogger(__name__)


class GenEval(Reward):
    """`geneval`: the soft score in [0, 1] (Flow-GRPO, Liu et al. 2025); `geneval_strict`: the
    benchmark's result, 1 if everything is correct, otherwise 0.

    NaN where a prompt's metadata can't be scored. RewardError where a network can't be loaded.
    """

    media = "images"
    metadata = ("tag", "include")
    prompt_feature = "coco_objects"
    main = "geneval"
    better = {"geneval_strict": "higher"}
    best_score = 1.0

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
        """
        Args:
            path: The detector, a Mask2Former for instance segmentation: a folder or a hub id.
            clip_path: The CLIP for colours: a folder or a hub id.
            relation_credit: none | flow_grpo: the terms of a wrong relation, see
                docs/reward/geneval.md.
            threshold: in [0, 1): objects of lower confidence are ignored.
            counting_threshold: in [0, 1): the same for prompts tagged `counting`.
            max_objects: Per class, the most confident.
            side: Pixels to which an image's shorter side is resized for the detector.
            dtype: float32 | float16 | bfloat16.
            batch_size: Images in one forward pass.
        """
        self.relation_credit: RelationCredit = relation_credit
        self.threshold = threshold
        self.counting_threshold = counting_threshold
        self.max_objects = max_objects
        self.batch_size = batch_size
        self.detect = Detector(path, device, dtype=getattr(torch, dtype), side=side)
        self.name_colors = ColorNamer(clip_path, device, dtype=dtype)

    def check_prompts(self, prompts: Iterable[Prompt]) -> None:
        """RewardError that names the first prompt whose metadata can't be scored."""
        for prompt in prompts:
            if problem := metadata_problem(prompt.metadata, self.detect.names):
                raise RewardError(
                    f"reward=geneval can't score the prompt {prompt.text!r}: {problem};"
                    " prompts=geneval fits, and so does GenEval's own evaluation_metadata.jsonl"
                )

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]` in [0, 1]."""
        images = require_images(samples)
        lowest = min(self.threshold, self.counting_threshold)  # each prompt filters by its own
        grades: list[tuple[float, float]] = []
        for start in range(0, len(images), self.batch_size):
            rows = slice(start, start + self.batch_size)
            instances = self.detect(images[rows], lowest)
            batch = zip(images[rows], instances, samples.metadata[rows], strict=True)
            grades += [self._grade(*sample) for sample in batch]
        soft, strict = torch.tensor(grades, dtype=torch.float32).reshape(-1, 2).unbind(1)
        return {"geneval": soft.contiguous(), "geneval_strict": strict.contiguous()}

    def _grade(
        self, image: Tensor, instances: Sequence[Instance], metadata: Mapping[str, Any]
    ) -> tuple[float, float]:
        """The soft and the strict score of one image."""
        if problem := metadata_problem(metadata, self.detect.names):
            log.error("reward geneval: %s", problem)
            return nan, nan
        counting = metadata["tag"] == "counting"
        threshold = self.counting_threshold if counting else self.threshold
        kept = most_confident(instances, threshold, self.max_objects)
        colored = {clause["class"] for clause in metadata["include"] if "color" in clause}
        objects = [
            detection
            for name, group in groupby(kept, key=lambda item: item.name)
            for detection in self._detections(image, list(group), name in colored)
        ]
        soft = soft_score(objects, metadata, relation_credit=self.relation_credit)
        return soft, strict_score(objects, metadata)

    def _detections(
        self, image: Tensor, items: Sequence[Instance], colored: bool
    ) -> list[Detection]:
        """Objects of one class, with colours only where the prompt asks for one."""
        colors = self.name_colors(image, items) if colored else [None] * len(items)
        pairs = zip(items, colors, strict=True)
        return [Detection(item.name, color, item.box) for item, color in pairs]


def most_confident(instances: Sequence[Instance], threshold: float, most: int) -> list[Instance]:
    """At most `most` instances of each class with a confidence above `threshold`.

    Ordered by class name, then by falling confidence.
    """
    confident = sorted(
        (item for item in instances if item.confidence > threshold),
        key=lambda item: (item.name, -item.confidence),
    )
    classes = groupby(confident, key=lambda item: item.name)
    return [item for _, group in classes for item in list(group)[:most]]
