"""Does the picture show what the prompt says? GenEval's score on the grammar of scenes."""

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from rlfactory.reward.base import Reward, Samples, pictures
from rlfactory.reward.detector import UNKNOWN, detect
from rlfactory.reward.geneval import Detection, RelationCredit, soft_score, strict_score


class Shapes(Reward):
    """`shapes`: GenEval's soft score in [0, 1]; `shapes_strict`: 1 if all is right, otherwise 0.

    A blob that is no shape is a fault: strict is 0, and soft counts a term of 0 for each blob, or
    with `blobs="ignored"` both pass over it, as GenEval does.
    """

    media = "images"
    metadata = ("include",)
    main = "shapes"

    def __init__(
        self,
        *,
        relation_credit: Literal["none", "flow_grpo"] = "none",
        blobs: Literal["fault", "ignored"] = "fault",
    ):
        self.relation_credit: RelationCredit = relation_credit
        self.blobs = blobs

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Soft and strict scores `[B]` of what the detector finds."""
        images = pictures(samples).permute(0, 2, 3, 1).numpy()
        found = detect(images)
        pairs = [
            self._grade(objects, wanted)
            for objects, wanted in zip(found, samples.metadata, strict=True)
        ]
        soft, strict = torch.tensor(pairs, dtype=torch.float32).reshape(-1, 2).unbind(1)
        return {"shapes": soft, "shapes_strict": strict}

    def _grade(
        self, objects: list[Detection], wanted: Mapping[str, Any]
    ) -> tuple[float, float]:
        soft = soft_score(objects, wanted, relation_credit=self.relation_credit)
        strict = strict_score(objects, wanted)
        blobs = sum(item.name == UNKNOWN for item in objects)
        if self.blobs == "ignored" or not blobs:
            return soft, strict
        return soft, strict
