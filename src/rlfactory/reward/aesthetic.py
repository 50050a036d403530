"""How pleasing is a picture? LAION's predictor of people's ratings, on an embedding of CLIP.

The head of github.com/christophschuhmann/improved-aesthetic-predictor: five layers of 768, 1024,
128, 64, 16 and 1 with no activation between, so that together they are one affine map.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from rlfactory.reward.base import Reward, RewardError, Samples, pictures
from rlfactory.reward.checkpoint import read_weights, require_shapes
from rlfactory.reward.clip import Precision, load_clip
from rlfactory.reward.rating_head import rating_layers
from rlfactory.types import PositiveInt

WIDTH = 768


class Head(nn.Module):
    """From embeddings `[B, 768]` of unit length to ratings `[B]`, mostly between 1 and 10."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = rating_layers(WIDTH)

    def forward(self, embedding: Tensor) -> Tensor:
        rating: Tensor = self.layers(embedding)
        return rating[:, 0]


def load_head(weights: Mapping[str, Tensor], path: str) -> Head:
    """The head in float32; RewardError where a state dict is another's."""
    with torch.device("meta"):
        head = Head()
    shapes = {name: tensor.shape for name, tensor in head.state_dict().items()}
    what = "head of LAION's aesthetic predictor"
    require_shapes(weights, shapes, path=path, key="reward.head", what=what)
    head.load_state_dict({name: value.float() for name, value in weights.items()}, assign=True)
    return head.requires_grad_(False).eval()


class Aesthetic(Reward):
    """`aesthetic`: the rating that LAION's head predicts from the picture's embedding.

    It does not look at the prompt.
    """

    media = "images"
    metadata = ()
    main = "aesthetic"

    def __init__(
        self,
        device: torch.device,
        *,
        path: str = "openai/clip-vit-large-patch14",
        head: str = "trl-lib/ddpo-aesthetic-predictor/aesthetic-model.pth",
        dtype: Precision = "float32",
        batch_size: PositiveInt = 32,
    ) -> None:
        self.head = load_head(read_weights(head, key="reward.head"), head)
        self.clip = load_clip(path, device, dtype=dtype, batch_size=batch_size, reads_prompts=False)
        if self.clip.width != WIDTH:
            raise RewardError(
                f"reward.path={path} embeds a picture in {self.clip.width} numbers, and the head"
                f" reads {WIDTH}; type reward.path=openai/clip-vit-large-patch14"
            )

    @torch.inference_mode()
    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Ratings `[B]`, mostly between 1 and 10."""
        # the head is small: float32 on the CPU is exact and costs nothing
        return {"aesthetic": self.head(self.clip.embed_images(pictures(samples)))}
