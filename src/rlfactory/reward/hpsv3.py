"""Human Preference Score v3, HPSv3 (Ma et al. 2025): a vision-language model rates an image."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, Qwen2VLConfig, Qwen2VLImageProcessorPil, Qwen2VLModel
from transformers.models.qwen2_vl.modeling_qwen2_vl import (
    Qwen2VLRotaryEmbedding,
    Qwen2VLVisionRotaryEmbedding,
)

from rlfactory.reward.backbones.pretrained import (
    Precision,
    load_full_tokenizer,
    load_published,
    loading,
    network_dtype,
    renamed,
)
from rlfactory.reward.base import Reward, Samples, require_images
from rlfactory.utils.types import PositiveInt

PIXELS = 256 * 28 * 28
"""To about which an image is resized, its aspect ratio kept, as published."""
SCORED = "<|Reward|>"
IMAGE = "<|image_pad|>"
QUESTION = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
"""The published instruction in Qwen2-VL's chat template."""
HEAD = "rm_head."
# names of transformers before 4.52, in which the file was written
_RENAMED = (
    (r"^visual\.", "model.visual."),
    (r"^model\.(?!visual\.|language_model\.)", "model.language_model."),
)


class HPSv3(Reward):
    """`hpsv3`: HPSv3's mean score of prompt and image.

    NaN where a prompt has the token of the score itself, or `dtype` overflows.
    """

    media = "images"
    main = "hpsv3"
    published_size = "hpsv3"

    def __init__(
        self,
        device: torch.device,
        *,
        path: str = "MizzenAI/HPSv3/HPSv3.safetensors",
        processor: str = "Qwen/Qwen2-VL-7B-Instruct",
        dtype: Precision = "auto",
        batch_size: PositiveInt = 4,
    ) -> None:
        """
        Args:
            path: The weights: a file, or OWNER/NAME/FILE of the hub.
            processor: Tokenizer and configuration of Qwen2-VL-7B: a folder or a hub id.
            dtype: auto | float32 | float16 | bfloat16; auto: bfloat16 on a GPU.
            batch_size: Images in one forward pass.
        """
        self.device, self.batch_size = device, batch_size
        with loading("reward.processor", processor, "a Qwen2-VL") as locate:
            source = locate(processor)
            config = AutoConfig.from_pretrained(source, trust_remote_code=False)
            if not isinstance(config, Qwen2VLConfig):
                raise ValueError(f"it is a {config.model_type}")
            self.tokenizer = load_full_tokenizer(source)
        self.tokenizer.padding_side = "right"
        self.tokenizer.add_tokens([SCORED], special_tokens=True)
        self.scored = self.tokenizer.convert_tokens_to_ids(SCORED)
        precision = network_dtype(dtype, device)
        self.network = load_published(
            path, "HPSv3", lambda weights: load_hpsv3(weights, config, precision)
        ).to(device)
        vision = config.vision_config
        self.patches_of_token = vision.spatial_merge_size**2
        self.pixels = Qwen2VLImageProcessorPil(
            size={"shortest_edge": PIXELS, "longest_edge": PIXELS},
            patch_size=vision.patch_size,
            merge_size=vision.spatial_merge_size,
            temporal_patch_size=vision.temporal_patch_size,
        )

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]`, unbounded; published ones are mostly between 0 and 15."""
        images, scores = require_images(samples), torch.full((len(samples.prompts),), torch.nan)
        texts = [QUESTION.replace("{prompt}", prompt) for prompt in samples.prompts]
        rows = [i for i, text in enumerate(texts) if text.count(SCORED) == text.count(IMAGE) == 1]
        for start in range(0, len(rows), self.batch_size):
            batch = rows[start : start + self.batch_size]
            scores[batch] = self._batch(images[batch], [texts[i] for i in batch])
        return {"hpsv3": scores.masked_fill(scores.isinf(), torch.nan)}

    @torch.inference_mode()
    def _batch(self, images: Tensor, texts: Sequence[str]) -> Tensor:
        given = [*images.numpy()]
        pixels = self.pixels(given, return_tensors="pt", input_data_format="channels_first")
        tokens = IMAGE * (int(pixels["image_grid_thw"][0].prod()) // self.patches_of_token)
        text = self.tokenizer(
            [text.replace(IMAGE, tokens) for text in texts], padding=True, return_tensors="pt"
        ).to(self.device)
        found: Tensor = self.network(
            text["input_ids"],
            text["attention_mask"],
            self.scored,
            pixel_values=pixels["pixel_values"].to(self.device, self.network.model.dtype),
            image_grid_thw=pixels["image_grid_thw"].to(self.device),
        )
        return found.cpu()


class HPSv3Network(nn.Module):
    """Qwen2-VL without its output layer, and HPSv3's head: `mu` and the logarithm of `sigma`.

    Positions of all tokens, of the image's too, count from 0: as published, whose forward pass
    does not compute Qwen2-VL's positions in three dimensions. The head is float32.
    """

    def __init__(self, config: Qwen2VLConfig, widths: Sequence[int]) -> None:
        super().__init__()
        self.model = Qwen2VLModel(config)
        first, second, outputs = widths
        self.rm_head = nn.Sequential(
            nn.Linear(config.text_config.hidden_size, first),
            nn.ReLU(),
            nn.Dropout(0.05),
            nn.Linear(first, second),
            nn.ReLU(),
            nn.Linear(second, outputs),
        )

    def forward(self, ids: Tensor, mask: Tensor, scored: int, **pixels: Tensor) -> Tensor:
        """`mu` `[B]`, at the token `scored`, which is once in each row of `ids` `[B, L]`."""
        positions = torch.arange(ids.shape[1], device=ids.device).expand(3, *ids.shape)
        states = self.model(
            input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False, **pixels
        ).last_hidden_state
        return self.rm_head(states[ids == scored].float())[:, 0]


def load_hpsv3(
    state: Mapping[str, Tensor], config: Qwen2VLConfig, dtype: torch.dtype
) -> HPSv3Network:
    """A frozen network with published weights, the head in float32 and the rest in `dtype`.

    The output layer of the language model is left out. RuntimeError or KeyError where names or
    shapes do not match.
    """
    weights = {
        renamed(name, _RENAMED): tensor
        for name, tensor in state.items()
        if name != "lm_head.weight"
    }
    embedded = weights["model.language_model.embed_tokens.weight"]
    config.text_config.vocab_size = len(embedded)  # cut to the tokenizer's length
    widths = [len(weights[f"{HEAD}{layer}.bias"]) for layer in (0, 3, 5)]
    with torch.device("meta"):
        network = HPSv3Network(config, widths)
    cast = {
        name: tensor.to(torch.float32 if name.startswith(HEAD) else dtype)
        for name, tensor in weights.items()
    }
    network.load_state_dict(cast, strict=True, assign=True)
    # of these, no buffer is in the file
    text: Any = network.model.language_model
    text.rotary_emb = Qwen2VLRotaryEmbedding(config.text_config)
    network.model.visual.rotary_pos_emb = Qwen2VLVisionRotaryEmbedding(config.vision_config)
    return network.eval().requires_grad_(False)
