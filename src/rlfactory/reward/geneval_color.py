"""Which colour has an object? CLIP's nearest of ten, on the object cut out of its picture."""

from collections.abc import Sequence
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import normalize
from transformers import CLIPImageProcessorPil, CLIPModel

from rlfactory.pillow import to_pil
from rlfactory.reward.geneval_detector import Instance
from rlfactory.reward.geneval_metadata import COLORS
from rlfactory.reward.pretrained import loading, whole_model, whole_tokenizer
from rlfactory.zoo.models import resolve

BACKGROUND = "#999"
TEMPLATES = (
    "a photo of a {color} {name}",
    "a photo of a {color}-colored {name}",
    "a photo of a {color} object",
)


class ColorNamer:
    """Names of colours by a CLIP model, as GenEval asks it; RewardError where `path` holds none."""

    def __init__(self, path: str, device: torch.device, *, dtype: torch.dtype) -> None:
        with loading("reward.clip_path", path, "a CLIP") as locate:
            place = locate(resolve(path, "config.json"))
            self.model = whole_model(CLIPModel, place, dtype).to(device)
            self.tokenizer = whole_tokenizer(place)
            self.processor = CLIPImageProcessorPil.from_pretrained(place)
        self._known: dict[str, Tensor] = {}

    def __call__(self, image: Tensor, objects: Sequence[Instance]) -> list[str]:
        """A colour for each of some objects of one class in a picture `[3, H, W]` uint8."""
        if not objects:
            return []
        picture = to_pil(image)
        crops = self.processor([cut_out(picture, item) for item in objects], return_tensors="pt")
        seen = features(self.model, pixel_values=crops["pixel_values"])
        nearest = (seen @ self._colors(objects[0].name).T).argmax(1).tolist()
        return [COLORS[i] for i in nearest]

    def _colors(self, name: str) -> Tensor:
        """A direction for each colour of a class of objects, `[colours, D]`."""
        if name not in self._known:
            texts = [t.format(color=color, name=name) for color in COLORS for t in TEMPLATES]
            tokens = self.tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
            each = features(self.model, **tokens).reshape(len(COLORS), len(TEMPLATES), -1)
            self._known[name] = normalize(each.mean(1), dim=-1)
        return self._known[name]


def cut_out(picture: Image.Image, item: Instance) -> Image.Image:
    """The object's box of a picture, grey where the object is not."""
    blank = Image.new("RGB", picture.size, BACKGROUND)
    mask = Image.fromarray(item.mask.numpy())
    left, top, right, bottom = map(round, item.box)
    return Image.composite(picture, blank, mask).crop((left, top, right, bottom))


@torch.inference_mode()
def features(model: Any, **inputs: Tensor) -> Tensor:
    """CLIP's features of texts or of pictures, each of length 1, `[B, D]` float32 on the CPU."""
    there = {name: value.to(model.device) for name, value in inputs.items()}
    if "pixel_values" in there:
        there["pixel_values"] = there["pixel_values"].to(model.dtype)
    embed = model.get_image_features if "pixel_values" in there else model.get_text_features
    found = embed(**there)
    # newer versions of transformers return more than the features
    found = found if isinstance(found, Tensor) else found.pooler_output
    return normalize(found.float(), dim=-1).cpu()
