"""A small convolutional network that predicts the score of shapes from an image and its prompt."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rlfactory.prompts.ops.scenes import COLORS, RELATIONS, SHAPES

CLAUSES = 2
_COLORS = list(COLORS)
_CLAUSE = len(SHAPES) + len(_COLORS) + 4
FEATURES = CLAUSES * _CLAUSE + len(RELATIONS)


def prompt_features(metadata: Sequence[Mapping[str, Any]]) -> Tensor:
    """What prompts ask for, `[B, FEATURES]` of 0 and 1: shape, colour and count of two clauses, and
    the relation.

    `metadata` is that of `prompts=shapes` (`include`).
    """
    features = torch.zeros(len(metadata), FEATURES)
    for row, meta in zip(features, metadata, strict=True):
        for i, clause in enumerate(meta["include"][:CLAUSES]):
            start = i * _CLAUSE
            row[start + SHAPES.index(clause["class"])] = 1
            if "color" in clause:
                row[start + len(SHAPES) + _COLORS.index(clause["color"])] = 1
            row[start + _CLAUSE - 4 + min(int(clause["count"]), 4) - 1] = 1
            if "position" in clause:
                row[CLAUSES * _CLAUSE + RELATIONS.index(clause["position"][0])] = 1
    return features


class SceneScorer(nn.Module):
    """Logits of scores `[B]` from images `[B, 3, 64, 64]` uint8 and `prompt_features`.

    The features scale the channels, which are then averaged over the image: where something lies
    is hardly known, and many faint parts count like one clear one.
    """

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        widths = [3, width // 2, width, 2 * width, 2 * width]
        self.convolutions = nn.ModuleList(
            nn.Conv2d(a, b, 3, stride=2, padding=1)
            for a, b in zip(widths[:-1], widths[1:], strict=True)
        )
        self.scale = nn.Linear(FEATURES, 2 * width)
        self.hidden = nn.Linear(2 * width + FEATURES, 2 * width)
        self.out = nn.Linear(2 * width, 1)

    def forward(self, images: Tensor, features: Tensor) -> Tensor:
        x = images.float() / 127.5 - 1
        for convolution in self.convolutions:
            x = F.silu(convolution(x))
        scaled = F.relu(x * self.scale(features)[:, :, None, None])
        pooled = torch.cat([scaled.mean((2, 3)), features], 1)
        logits: Tensor = self.out(F.silu(self.hidden(pooled)))
        return logits[:, 0]
