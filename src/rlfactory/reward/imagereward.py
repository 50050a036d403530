"""ImageReward (Xu et al. 2023): a BLIP model trained on human comparisons of images.

The network is BLIP's image-grounded text encoder (Li et al. 2022) with a scoring head. The file
names its tensors as BLIP's own code does; the networks here are those of transformers. Sizes are
read off the tensors.
"""

from collections.abc import Mapping, Sequence
from math import isqrt
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    BlipTextConfig,
    BlipTextModel,
    BlipVisionConfig,
    BlipVisionModel,
    CLIPImageProcessorPil,
)

from rlfactory.reward.backbones.clip import clip_preprocessing
from rlfactory.reward.backbones.pretrained import (
    Precision,
    load_full_tokenizer,
    load_published,
    loading,
    network_dtype,
    rating_layers,
    renamed,
)
from rlfactory.reward.base import Metadata, Reward, RewardError, Samples, require_images
from rlfactory.utils.types import PositiveInt

MEAN, DEVIATION = 0.16717362830052426, 1.0333394966054072
"""Mean and standard deviation of raw scores on the authors' data, as published."""
_MAX_TOKENS = 35


def normalise(raw: Tensor) -> Tensor:
    """Scores on the published scale (mean 0, deviation 1 on the authors' data), from raw ones."""
    return (raw - MEAN) / DEVIATION


class ImageReward(Reward):
    """`imagereward`: ImageReward-v1.0's score of prompt and image, mostly between -2 and 2."""

    media = "images"
    main = "imagereward"
    differentiable = True

    def __init__(
        self,
        device: torch.device,
        *,
        path: str = "THUDM/ImageReward/ImageReward.pt",
        tokenizer: str = "google-bert/bert-base-uncased",
        dtype: Precision = "auto",
        batch_size: PositiveInt = 16,
    ) -> None:
        """
        Args:
            path: The weights: a file, or OWNER/NAME/FILE of the hub.
            tokenizer: BERT's, lower case: a folder or a hub id.
            dtype: auto | float32 | float16 | bfloat16; auto: bfloat16 on a GPU.
            batch_size: Images in one forward pass.
        """
        self.device = device
        self.batch_size = batch_size
        precision = network_dtype(dtype, device)
        self.model = load_published(
            path, "ImageReward", lambda weights: load_blip_scorer(weights, precision)
        ).to(device)
        self.tokenizer = _load_tokenizer(tokenizer, self.model)
        self.side = self.model.vision.config.image_size
        # as published: bicubic resize of the shorter side, CLIP's mean and deviation; `_crop`
        self.processor = CLIPImageProcessorPil(
            size={"shortest_edge": self.side}, do_center_crop=False
        )

    def score_pixels(self, pixels: Tensor, prompts: Sequence[str], metadata: Metadata) -> Tensor:
        inputs = clip_preprocessing(self.processor, None)(pixels.to(self.device))
        return normalise(self.model(self._crop(inputs), *self._tokens(prompts)))

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]`, unbounded; NaN where `dtype` overflows."""
        images = require_images(samples)
        raw = torch.empty(len(images))
        for start in range(0, len(images), self.batch_size):
            rows = slice(start, start + self.batch_size)
            raw[rows] = self._raw(images[rows], samples.prompts[rows])
        return {"imagereward": normalise(raw).masked_fill(raw.isinf(), torch.nan)}

    @torch.inference_mode()
    def _raw(self, images: Tensor, prompts: Sequence[str]) -> Tensor:
        pixels = self.processor(list(images.numpy()), return_tensors="pt")["pixel_values"]
        raw: Tensor = self.model(self._crop(pixels).to(self.device), *self._tokens(prompts))
        return raw.cpu()

    def _crop(self, pixels: Tensor) -> Tensor:
        """The centre, where torchvision's CenterCrop has it: half a pixel is rounded to even."""
        top, left = (round((length - self.side) / 2) for length in pixels.shape[2:])
        return pixels[:, :, top : top + self.side, left : left + self.side]

    def _tokens(self, prompts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Tokens and mask, padded to one length for all batches, as published."""
        text = self.tokenizer(
            list(prompts),
            padding="max_length",
            truncation=True,
            max_length=_MAX_TOKENS,
            return_tensors="pt",
        ).to(self.device)
        return text["input_ids"], text["attention_mask"]


def _load_tokenizer(path: str, model: "BlipScorer") -> Any:
    """BERT's tokenizer; RewardError where it has more tokens than the model's vocabulary."""
    with loading("reward.tokenizer", path, "a tokenizer") as locate:
        tokenizer = load_full_tokenizer(locate(path))
    known = model.text.config.vocab_size
    if len(tokenizer) > known:
        raise RewardError(
            f"reward.tokenizer={path} has {len(tokenizer)} tokens; the model has {known}"
        )
    return tokenizer


_HEAD_WIDTH = 64  # of each attention head in both encoders of BLIP-base and BLIP-large
_RENAMED = (
    (r"^blip\.visual_encoder\.(?=blocks\.)", "vision.encoder."),
    (r"^blip\.visual_encoder\.cls_token$", "vision.embeddings.class_embedding"),
    (r"^blip\.visual_encoder\.pos_embed$", "vision.embeddings.position_embedding"),
    (r"^blip\.visual_encoder\.patch_embed\.proj\.", "vision.embeddings.patch_embedding."),
    (r"^blip\.visual_encoder\.norm\.", "vision.post_layernorm."),
    (r"^vision\.encoder\.blocks\.", "vision.encoder.layers."),
    (r"(?<=\d)\.norm(?=[12]\.)", ".layer_norm"),
    (r"(?<=\d)\.attn\.proj\.", ".self_attn.projection."),
    (r"(?<=\d)\.attn\.qkv\.", ".self_attn.qkv."),
    (r"^blip\.text_encoder\.", "text."),
    (r"^mlp\.layers\.", "mlp."),
)
"""Substitutions from published names to those of `BlipScorer`, applied in order."""


class BlipScorer(nn.Module):
    """One number for a text and an image: a head on the text's first token, after the text encoder
    with cross-attention to the image.
    """

    def __init__(self, vision: BlipVisionConfig, text: BlipTextConfig) -> None:
        super().__init__()
        self.vision = BlipVisionModel(vision)
        self.text = BlipTextModel(text, add_pooling_layer=False)
        self.mlp = rating_layers(text.hidden_size)

    def forward(self, pixels: Tensor, tokens: Tensor, mask: Tensor) -> Tensor:
        """Raw scores `[B]` float32 of images `[B, 3, S, S]` and tokens `[B, L]` with a mask."""
        image = self.vision(pixel_values=pixels).last_hidden_state
        text = self.text(input_ids=tokens, attention_mask=mask, encoder_hidden_states=image)
        # the head is float32 whatever the precision of the encoders
        return self.mlp(text.last_hidden_state[:, 0].float())[:, 0]


def load_blip_scorer(state: Mapping[str, Tensor], dtype: torch.dtype) -> BlipScorer:
    """A frozen `BlipScorer` with published weights, the head in float32, the encoders in `dtype`.

    Tensors of BLIP's other tasks are ignored. RuntimeError or KeyError where names or shapes do not
    match.
    """
    with torch.device("meta"):
        scorer = BlipScorer(_vision_config(state), _text_config(state))
    scorer.load_state_dict(_renamed(state), strict=True, assign=True)
    # the one buffer is not in the file, and still on the meta device
    embeddings = scorer.text.embeddings
    embeddings.position_ids = torch.arange(embeddings.position_ids.shape[1])[None]
    scorer.vision.to(dtype)
    scorer.text.to(dtype)
    scorer.mlp.float()
    return scorer.eval().requires_grad_(False)


def _vision_config(state: Mapping[str, Tensor]) -> BlipVisionConfig:
    part = "blip.visual_encoder."
    width, _, patch, _ = state[part + "patch_embed.proj.weight"].shape
    patches = state[part + "pos_embed"].shape[1] - 1  # one position is the class token's
    return BlipVisionConfig(
        hidden_size=width,
        intermediate_size=len(state[part + "blocks.0.mlp.fc1.bias"]),
        num_hidden_layers=_layers(state, part + "blocks."),
        num_attention_heads=width // _HEAD_WIDTH,
        image_size=isqrt(patches) * patch,
        patch_size=patch,
        layer_norm_eps=1e-6,  # BLIP's; transformers' default differs
    )


def _text_config(state: Mapping[str, Tensor]) -> BlipTextConfig:
    part = "blip.text_encoder."
    vocabulary, width = state[part + "embeddings.word_embeddings.weight"].shape
    layer = part + "encoder.layer.0."
    return BlipTextConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        encoder_hidden_size=state[layer + "crossattention.self.key.weight"].shape[1],
        intermediate_size=len(state[layer + "intermediate.dense.bias"]),
        num_hidden_layers=_layers(state, part + "encoder.layer."),
        num_attention_heads=width // _HEAD_WIDTH,
        max_position_embeddings=len(state[part + "embeddings.position_embeddings.weight"]),
    )


def _layers(state: Mapping[str, Tensor], prefix: str) -> int:
    return len({name[len(prefix) :].split(".")[0] for name in state if name.startswith(prefix)})


def _renamed(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of the scoring network, by the names of `BlipScorer`."""
    parts = ("blip.visual_encoder.", "blip.text_encoder.", "mlp.")
    scoring = {name: tensor for name, tensor in state.items() if name.startswith(parts)}
    # a buffer, which is persistent in the older code that wrote the file
    scoring.pop("blip.text_encoder.embeddings.position_ids", None)
    return {renamed(name, _RENAMED): tensor for name, tensor in scoring.items()}
