"""GenEval's object detector, and its classifier of an object's colour."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import normalize
from transformers import Mask2FormerForUniversalSegmentation, Mask2FormerImageProcessorPil

from rlfactory.model.pipelines.local_models import resolve
from rlfactory.prompts.ops.geneval_metadata import COLORS, OBJECTS
from rlfactory.reward.backbones.clip import load_clip
from rlfactory.reward.backbones.pretrained import Precision, load_full_model, loading
from rlfactory.utils.images import to_pil

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Instance:
    """A detected object: class, confidence in [0, 1], mask `[H, W]` bool, and box.

    The box is (left, top, right, bottom) in pixels, the last two exclusive.
    """

    name: str
    confidence: float
    mask: Tensor
    box: Box


class Detector:
    """Instances by a `Mask2FormerForUniversalSegmentation`; RewardError where `path` holds none.

    Images are resized to `side` pixels on the shorter side. The attribute `names` has the classes:
    GenEval's names of COCO's where the model has 80, otherwise the model's own.
    """

    def __init__(self, path: str, device: torch.device, *, dtype: torch.dtype, side: int) -> None:
        self.device = device
        size = {"shortest_edge": side, "longest_edge": round(side * 5 / 3)}
        with loading("reward.path", path, "a Mask2Former") as locate:
            folder = locate(resolve(path, "config.json"))
            self.model = load_full_model(Mask2FormerForUniversalSegmentation, folder, dtype).to(
                device
            )
            self.processor = Mask2FormerImageProcessorPil.from_pretrained(folder, size=size)
        labels = self.model.config.id2label
        own = tuple(str(labels[i]) for i in range(self.model.config.num_labels))
        # the published weights have names of older data sets for some: tvmonitor, sofa
        self.names = OBJECTS if len(own) == len(OBJECTS) else own

    @torch.inference_mode()
    def __call__(self, images: Tensor, threshold: float) -> list[list[Instance]]:
        """The instances with a confidence above `threshold` in each image of `[B, 3, H, W]` uint8,
        the most confident first.
        """
        inputs = self.processor(list(images.numpy()), return_tensors="pt").to(self.device)
        pixels = inputs["pixel_values"].to(self.model.dtype)
        outputs = self.model(pixel_values=pixels, pixel_mask=inputs["pixel_mask"])
        # on the CPU in float32: the post-processing allocates its maps there
        outputs.class_queries_logits = outputs.class_queries_logits.float().cpu()
        outputs.masks_queries_logits = outputs.masks_queries_logits.float().cpu()
        results = self.processor.post_process_instance_segmentation(
            outputs,
            threshold=threshold,
            target_sizes=[tuple(images.shape[-2:])] * len(images),
            return_binary_maps=True,  # the only form in which objects may overlap
        )
        return [self._instances(r["segments_info"], r["segmentation"]) for r in results]

    def _instances(self, segments: list[dict[str, Any]], masks: Tensor) -> list[Instance]:
        if not segments:  # the masks are then one map without an object
            return []
        rows = [
            instance(self.names[segment["label_id"]], segment["score"], mask)
            for segment, mask in zip(segments, masks, strict=True)
        ]
        return sorted(rows, key=lambda row: -row.confidence)


def instance(name: str, confidence: float, mask: Tensor) -> Instance:
    """An instance with the smallest box around its mask, which must not be empty."""
    mask = mask.bool().cpu()
    rows, columns = mask.any(1).nonzero().flatten(), mask.any(0).nonzero().flatten()
    box = (columns[0].item(), rows[0].item(), columns[-1].item() + 1, rows[-1].item() + 1)
    return Instance(name, confidence, mask, box)


BACKGROUND = "#999"
TEMPLATES = (
    "a photo of a {color} {name}",
    "a photo of a {color}-colored {name}",
    "a photo of a {color} object",
)


class ColorNamer:
    """Zero-shot colour names by a CLIP with GenEval's prompts; RewardError without a CLIP there."""

    def __init__(self, path: str, device: torch.device, *, dtype: Precision) -> None:
        self.clip = load_clip(
            path, device, dtype=dtype, batch_size=2**31, resample=None, key="reward.clip_path"
        )
        self._classifiers: dict[str, Tensor] = {}  # by class of object

    def __call__(self, image: Tensor, objects: Sequence[Instance]) -> list[str]:
        """The colour of each of some objects of one class in an image `[3, H, W]` uint8."""
        if not objects:
            return []
        pil_image = to_pil(image)
        embeddings = self.clip.embed_images([crop_object(pil_image, item) for item in objects])
        nearest = (embeddings @ self._classifier(objects[0].name).T).argmax(1).tolist()
        return [COLORS[i] for i in nearest]

    def _classifier(self, name: str) -> Tensor:
        """The unit embedding of each colour for a class of objects, `[colours, D]`: the mean over
        `TEMPLATES`.
        """
        if name not in self._classifiers:
            texts = [t.format(color=color, name=name) for color in COLORS for t in TEMPLATES]
            embeddings = self.clip.embed_texts(texts).reshape(len(COLORS), len(TEMPLATES), -1)
            self._classifiers[name] = normalize(embeddings.mean(1), dim=-1)
        return self._classifiers[name]


def crop_object(image: Image.Image, item: Instance) -> Image.Image:
    """An image cropped to an object's box, grey outside its mask."""
    blank = Image.new("RGB", image.size, BACKGROUND)
    mask = Image.fromarray(item.mask.numpy())
    left, top, right, bottom = map(round, item.box)
    return Image.composite(image, blank, mask).crop((left, top, right, bottom))
