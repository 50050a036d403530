"""The score of shapes as a small network predicts it, right only near what it was trained on."""

from collections.abc import Iterable

import torch
from torch import Tensor

from rlfactory.model.pipelines.shipped import zoo_path
from rlfactory.prompts.base import Prompt
from rlfactory.reward.backbones.scene_scorer import fields, load_scorer
from rlfactory.reward.base import Reward, RewardError, Samples, require_images
from rlfactory.reward.shapes import Shapes


class ShapesLearned(Reward):
    """`shapes_learned`: a network's prediction of `shapes`; both are reported.

    The network (`zoo:shapes_scorer`, of `scripts/zoo/shapes_scorer.py`) has seen samples of the
    untrained `tiny_sd3` alone, with what their prompts ask for as fields.
    """

    media = "images"
    metadata = Shapes.metadata
    main = "shapes_learned"
    better = {"shapes": "higher", "shapes_strict": "higher"}
    best_score = 1.0

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.model = load_scorer(zoo_path("shapes_scorer"), device)
        self.gold = Shapes()

    def check_prompts(self, prompts: Iterable[Prompt]) -> None:
        """RewardError for a prompt that asks for what the network has no field for."""
        listed = list(prompts)
        super().check_prompts(listed)
        for prompt in listed:
            try:
                fields(prompt.metadata)
            except ValueError as error:
                raise RewardError(
                    f"the prompt {prompt.text!r}: {error}; reward=shapes_learned knows the scenes"
                    " of prompts=shapes, and reward=shapes all scenes of their shapes"
                ) from error

    @torch.inference_mode()
    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]` in [0, 1]."""
        images = require_images(samples).to(self.device)
        asked = torch.stack([fields(metadata) for metadata in samples.metadata])
        predicted = self.model(images, asked.to(self.device)).sigmoid().cpu()
        return {"shapes_learned": predicted, **self.gold.score(samples)}
