"""The score of shapes as a small network predicts it: a learned reward with blind spots."""

import torch
from torch import Tensor

from rlfactory.model.pipelines.local_models import ZOO_PREFIX, resolve
from rlfactory.reward.backbones.pretrained import read_weights, require_shapes
from rlfactory.reward.backbones.scene_scorer import SceneScorer, prompt_features
from rlfactory.reward.base import Reward, RewardError, Samples, require_images
from rlfactory.reward.shapes import Shapes

WEIGHTS = "model.safetensors"


def load_scorer(path: str) -> SceneScorer:
    """The network in float32 from `zoo:NAME` or a weights file; RewardError if it is another."""
    file = path
    if path.startswith(ZOO_PREFIX):
        try:
            file = f"{resolve(path, WEIGHTS)}/{WEIGHTS}"
        except ValueError as error:
            raise RewardError(f"reward.path={path}: {error}") from error
    weights = read_weights(file, key="reward.path")
    with torch.device("meta"):
        scorer = SceneScorer()
    shapes = {name: tensor.shape for name, tensor in scorer.state_dict().items()}
    require_shapes(weights, shapes, path=path, key="reward.path", what="scorer of scenes")
    scorer.load_state_dict({name: value.float() for name, value in weights.items()}, assign=True)
    return scorer.requires_grad_(False).eval()


class ShapesLearned(Reward):
    """`shapes_learned`: `shapes` as a network predicts it, in (0, 1); `shapes` is reported too.

    `path` is `zoo:NAME` or a weights file. RewardError where it can't be loaded. `prompts=shapes`
    has the metadata that it reads.
    """

    media = "images"
    metadata = Shapes.metadata
    main = "shapes_learned"
    better = {"shapes": "higher", "shapes_strict": "higher"}
    best_score = 1.0

    def __init__(self, *, path: str = "zoo:scene_scorer") -> None:
        self.scorer = load_scorer(path)
        self.gold = Shapes()

    @torch.inference_mode()
    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]` in (0, 1)."""
        logits = self.scorer(require_images(samples), prompt_features(samples.metadata))
        return {"shapes_learned": logits.sigmoid(), **self.gold.score(samples)}
