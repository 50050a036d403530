"""The score of shapes as a small network predicts it, right only near what it was trained on."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from rlfactory.model.pipelines.shipped import zoo_path
from rlfactory.prompts.base import Prompt
from rlfactory.prompts.ops.scenes import COLORS, RELATIONS, SHAPES
from rlfactory.reward.base import Metadata, Reward, RewardError, Samples, require_images
from rlfactory.reward.shapes import Shapes

FILE = "model.safetensors"
CLAUSES, MOST = 2, 4
_CLAUSE = len(SHAPES) + len(COLORS) + MOST
FIELDS = CLAUSES * _CLAUSE + len(RELATIONS)


class ShapesLearned(Reward):
    """`shapes_learned`: a network's prediction of `shapes`; both are reported.

    The network (`zoo:shapes_scorer`, of `scripts/zoo/shapes_scorer.py`) has seen samples of the
    untrained `tiny_sd3` alone, with what their prompts ask for as fields.
    """

    media = "images"
    metadata = Shapes.metadata
    main = "shapes_learned"
    differentiable = True
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
        predicted = self._predicted(require_images(samples), samples.metadata).cpu()
        return {"shapes_learned": predicted, **self.gold.score(samples)}

    def score_pixels(self, pixels: Tensor, prompts: Sequence[str], metadata: Metadata) -> Tensor:
        return self._predicted(255 * pixels, metadata)

    def _predicted(self, images: Tensor, metadata: Metadata) -> Tensor:
        """Scores `[B]` on the device, of images from 0 to 255."""
        asked = torch.stack([fields(row) for row in metadata]).to(self.device)
        return self.model(images.to(self.device), asked).sigmoid()


def fields(metadata: Mapping[str, Any]) -> Tensor:
    """GenEval's metadata of a scene as ones and zeros, `[FIELDS]`; ValueError for more than two
    clauses, or an unknown value.

    For each clause of `include` its shape, its colour (zeros: any) and its count, then the second
    clause's relation to the first (zeros: none).
    """
    include = metadata["include"]
    if len(include) > CLAUSES:
        raise ValueError(f"{len(include)} clauses, and at most {CLAUSES} can be read")
    row: list[float] = []
    for i in range(CLAUSES):
        clause = include[i] if i < len(include) else {}
        row += _one_hot(clause.get("class"), SHAPES)
        row += _one_hot(clause.get("color"), [*COLORS])
        row += _one_hot(clause.get("count"), range(1, MOST + 1))
    relation = next((c["position"][0] for c in include if "position" in c), None)
    return torch.tensor(row + _one_hot(relation, RELATIONS))


def _one_hot(value: object, allowed: Sequence[object]) -> list[float]:
    if value is not None and value not in allowed:
        raise ValueError(f"{value!r} is none of {', '.join(map(str, allowed))}")
    return [float(value == other) for other in allowed]


class SceneScorer(nn.Module):
    """The predicted score in [0, 1]: convolutions whose features the prompt scales and shifts."""

    def __init__(self) -> None:
        super().__init__()
        self.look = nn.Sequential(
            nn.Conv2d(3, 16, 5, stride=2, padding=2),
            nn.GELU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.GELU(),
            nn.Conv2d(32, 48, 3, stride=2, padding=1),
            nn.GELU(),
        )
        self.read = nn.Linear(FIELDS, 2 * 64)
        self.meet = nn.Conv2d(48 + 2, 64, 1)
        self.judge = nn.Conv2d(64, 32, 3, padding=1)
        self.head = nn.Sequential(nn.Linear(2 * 32, 32), nn.GELU(), nn.Linear(32, 1))

    def forward(self, images: Tensor, asked: Tensor) -> Tensor:
        """Logits `[B]` of images `[B, 3, H, W]`, 0 to 255, and `fields` `[B, FIELDS]`."""
        seen = self.look(images.float() / 127.5 - 1)
        height, width = seen.shape[2:]
        y, x = (torch.linspace(-1, 1, n, device=seen.device) for n in (height, width))
        places = torch.stack(torch.meshgrid(y, x, indexing="ij")).expand(len(seen), -1, -1, -1)
        scale, shift = self.read(asked)[..., None, None].chunk(2, dim=1)
        met = F.gelu(self.meet(torch.cat([seen, places], 1)) * (1 + scale) + shift)
        judged = F.gelu(self.judge(met))
        logits: Tensor = self.head(torch.cat([judged.mean((2, 3)), judged.amax((2, 3))], 1))
        return logits[:, 0]


def load_scorer(folder: Path, device: torch.device) -> SceneScorer:
    """The frozen network whose weights are in a folder, in float32."""
    model = SceneScorer()
    model.load_state_dict(load_file(folder / FILE))
    return model.to(device).eval().requires_grad_(False)
