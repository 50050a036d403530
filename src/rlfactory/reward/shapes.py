"""GenEval's scores on scenes of coloured shapes (`prompts=shapes`). No network."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from rlfactory.prompts.base import Prompt
from rlfactory.prompts.ops.prompt_features import clauses_problem
from rlfactory.prompts.ops.scenes import SHAPES
from rlfactory.reward.base import Reward, RewardError, Samples, require_images
from rlfactory.reward.ops.geneval_score import Detection, RelationCredit, soft_score, strict_score
from rlfactory.reward.ops.shape_detector import UNKNOWN, detect


class Shapes(Reward):
    """`shapes`: GenEval's soft score in [0, 1]; `shapes_strict`: 1 if all is correct, otherwise 0.

    GenEval ignores what its detector does not recognise. Here, unless `blobs="ignored"`, each blob
    that fits no shape is a fault: one more term of 0 in the soft score, and a strict score of 0.
    """

    media = "images"
    metadata = ("include",)
    main = "shapes"
    better = {"shapes_strict": "higher"}
    best_score = 1.0

    def __init__(
        self,
        *,
        relation_credit: Literal["none", "flow_grpo"] = "none",
        blobs: Literal["fault", "ignored"] = "fault",
    ) -> None:
        """
        Args:
            relation_credit: none | flow_grpo: the terms of a wrong relation, see
                docs/reward/shapes.md.
            blobs: fault | ignored: whether a blob of no known shape lowers the score.
        """
        self.relation_credit: RelationCredit = relation_credit
        self.blobs = blobs

    def check_prompts(self, prompts: Iterable[Prompt]) -> None:
        """RewardError that names the first prompt whose metadata can't be scored."""
        prompts = [*prompts]
        super().check_prompts(prompts)
        for prompt in prompts:
            if problem := clauses_problem(prompt.metadata, SHAPES):
                raise RewardError(
                    f"reward=shapes can't score the prompt {prompt.text!r}: {problem};"
                    " prompts=shapes fits"
                )

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]` in [0, 1]."""
        detections = detect(require_images(samples).permute(0, 2, 3, 1).numpy())
        pairs = zip(detections, samples.metadata, strict=True)
        grades = [self._grade(objects, metadata) for objects, metadata in pairs]
        soft, strict = torch.tensor(grades, dtype=torch.float32).reshape(-1, 2).unbind(1)
        return {"shapes": soft.contiguous(), "shapes_strict": strict.contiguous()}

    def _grade(self, objects: list[Detection], metadata: Mapping[str, Any]) -> tuple[float, float]:
        faults = 0
        if self.blobs == "fault":
            faults = sum(item.name == UNKNOWN for item in objects)
        credit = self.relation_credit
        soft = soft_score(objects, metadata, relation_credit=credit, faults=faults)
        return soft, strict_score(objects, metadata) if faults == 0 else 0.0
