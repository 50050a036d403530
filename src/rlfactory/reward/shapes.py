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

    GenEval passes over what it does not recognise. Here, unless `blobs="ignored"`, each blob that
    fits no shape is a fault: one more term of 0 in the soft mean, and no strict score.
    """

    media = "images"
    metadata = ("include",)
    main = "shapes"
    good = 1.0

    def __init__(
        self,
        *,
        relation_credit: Literal["none", "flow_grpo"] = "none",
        blobs: Literal["fault", "ignored"] = "fault",
    ) -> None:
        self.relation_credit: RelationCredit = relation_credit
        self.blobs = blobs

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]` of what the detector finds; ValueError where metadata is no scene's."""
        found = detect(pictures(samples).permute(0, 2, 3, 1).numpy())
        grades = [
            self._grade(objects, wanted)
            for objects, wanted in zip(found, samples.metadata, strict=True)
        ]
        soft, strict = torch.tensor(grades, dtype=torch.float32).reshape(-1, 2).unbind(1)
        return {"shapes": soft.contiguous(), "shapes_strict": strict.contiguous()}

    def _grade(self, objects: list[Detection], wanted: Mapping[str, Any]) -> tuple[float, float]:
        faults = 0
        if self.blobs == "fault":
            faults = sum(item.name == UNKNOWN for item in objects)
        credit = self.relation_credit
        soft = soft_score(objects, wanted, relation_credit=credit, faults=faults)
        return soft, strict_score(objects, wanted) if faults == 0 else 0.0
