"""LAION's aesthetic predictor: human ratings of images, predicted from a CLIP embedding.

The head of github.com/christophschuhmann/improved-aesthetic-predictor is an MLP of widths 768,
1024, 128, 64, 16 and 1 without activations, so it is one affine map.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from rlfactory.reward.backbones.clip import load_clip
from rlfactory.reward.backbones.pretrained import (
    Precision,
    rating_layers,
    read_weights,
    require_shapes,
)
from rlfactory.reward.base import Metadata, Reward, RewardError, Samples, require_images
from rlfactory.utils.types import PositiveInt

WIDTH = 768


def load_head(weights: Mapping[str, Tensor], path: str) -> nn.Module:
    """The head in float32 from a state dict: ratings `[B]` from embeddings `[B, 768]` of unit
    length. RewardError where names or shapes do not match.
    """
    with torch.device("meta"):
        head = nn.Sequential(OrderedDict(layers=rating_layers(WIDTH), flat=nn.Flatten(0)))
    what = "head of LAION's aesthetic predictor"
    require_shapes(weights, head, path=path, key="reward.head", what=what)
    head.load_state_dict({name: value.float() for name, value in weights.items()}, assign=True)
    return head.requires_grad_(False).eval()


class Aesthetic(Reward):
    """`aesthetic`: the rating predicted from the image's embedding; the prompt is not used."""

    media = "images"
    model_options = ("path",)
    main = "aesthetic"
    differentiable = True

    def __init__(
        self,
        device: torch.device,
        *,
        path: str = "openai/clip-vit-large-patch14",
        head: str = "trl-lib/ddpo-aesthetic-predictor/aesthetic-model.pth",
        dtype: Precision = "auto",
        batch_size: PositiveInt = 32,
    ) -> None:
        """
        Args:
            path: the CLIP that the head was trained on: a folder or a hub id.
            head: The head's weights: a file or OWNER/NAME/FILE.
            dtype: auto | float32 | float16 | bfloat16, of the CLIP; auto: bfloat16 on a GPU.
            batch_size: Images in one forward pass.
        """
        self.head = load_head(read_weights(head, key="reward.head"), head)
        self.clip = load_clip(path, device, dtype=dtype, batch_size=batch_size, reads_prompts=False)
        if self.clip.width != WIDTH:
            raise RewardError(
                f"reward.path={path} has embeddings of {self.clip.width} numbers, and the head"
                f" reads {WIDTH}; type reward.path=openai/clip-vit-large-patch14"
            )

    @torch.inference_mode()
    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Ratings `[B]`, mostly between 1 and 10."""
        # on the CPU in float32: exact, and its cost is negligible
        return {"aesthetic": self.head(self.clip.embed_images(require_images(samples)))}

    def score_pixels(self, pixels: Tensor, prompts: Sequence[str], metadata: Metadata) -> Tensor:
        return self.head(self.clip.embed_pixels(pixels).cpu())
