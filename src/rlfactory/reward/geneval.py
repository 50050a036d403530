"""GenEval (Ghosh et al. 2023) as a reward: objects by Mask2Former, their colours by CLIP."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import nan
from typing import Any, Literal

import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import normalize
from transformers import Mask2FormerForUniversalSegmentation, Mask2FormerImageProcessorPil

from rlfactory.model.pipelines.local_models import resolve
from rlfactory.prompts.base import Prompt
from rlfactory.prompts.ops.prompt_features import COLORS, OBJECTS, metadata_problem
from rlfactory.reward.backbones.clip import load_clip
from rlfactory.reward.backbones.pretrained import Precision, load_full_model, loading
from rlfactory.reward.base import Reward, RewardError, Samples, require_images
from rlfactory.reward.ops.geneval_score import Detection, RelationCredit, soft_score, strict_score
from rlfactory.utils.images import to_pil
from rlfactory.utils.types import BelowOne, PositiveInt

log = logging.getLogger(__name__)


class GenEval(Reward):
    """`geneval`: the soft score in [0, 1] (Flow-GRPO, Liu et al. 2025); `geneval_strict`: the
    benchmark's result, 1 if everything is correct, otherwise 0.

    NaN where a prompt's metadata can't be scored.
    """

    media = "images"
    model_options = ("path",)
    metadata = ("tag", "include")
    prompt_feature = "coco_objects"
    main = "geneval"
    better = {"geneval_strict": "higher"}
    best_score = 1.0

    def __init__(
        self,
        device: torch.device,
        *,
        path: str = "facebook/mask2former-swin-small-coco-instance",
        clip_path: str = "openai/clip-vit-large-patch14",
        relation_credit: Literal["none", "flow_grpo"] = "none",
        threshold: BelowOne = 0.3,
        counting_threshold: BelowOne = 0.9,
        max_objects: PositiveInt = 16,
        side: PositiveInt = 800,
        dtype: Literal["float32", "float16", "bfloat16"] = "float32",
        batch_size: PositiveInt = 8,
    ) -> None:
        """
        Args:
            path: The detector, a Mask2Former for instance segmentation: a folder or a hub id.
            clip_path: The CLIP for colours: a folder or a hub id.
            relation_credit: none | flow_grpo: the terms of a wrong relation, see
                docs/reward/geneval.md.
            threshold: in [0, 1): objects of lower confidence are ignored.
            counting_threshold: in [0, 1): the same for prompts tagged `counting`.
            max_objects: Per class, the most confident.
            side: Pixels to which an image's shorter side is resized for the detector.
            dtype: float32 | float16 | bfloat16.
            batch_size: Images in one forward pass.
        """
        self.relation_credit: RelationCredit = relation_credit
        self.threshold = threshold
        self.counting_threshold = counting_threshold
        self.max_objects = max_objects
        self.batch_size = batch_size
        self.detect = Detector(path, device, dtype=getattr(torch, dtype), side=side)
        self.name_colors = ColorNamer(clip_path, device, dtype=dtype)

    def check_prompts(self, prompts: Iterable[Prompt]) -> None:
        """RewardError that names the first prompt whose metadata can't be scored."""
        for prompt in prompts:
            if problem := metadata_problem(prompt.metadata, self.detect.names):
                raise RewardError(
                    f"reward=geneval can't score the prompt {prompt.text!r}: {problem};"
                    " prompts=geneval fits, and so does GenEval's own evaluation_metadata.jsonl"
                )

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]` in [0, 1]."""
        images = require_images(samples)
        lowest = min(self.threshold, self.counting_threshold)  # each prompt filters by its own
        grades: list[tuple[float, float]] = []
        for start in range(0, len(images), self.batch_size):
            rows = slice(start, start + self.batch_size)
            instances = self.detect(images[rows], lowest)
            batch = zip(images[rows], instances, samples.metadata[rows], strict=True)
            grades += [self._grade(*sample) for sample in batch]
        soft, strict = torch.tensor(grades, dtype=torch.float32).reshape(-1, 2).unbind(1)
        return {"geneval": soft.contiguous(), "geneval_strict": strict.contiguous()}

    def _grade(
        self, image: Tensor, instances: Sequence["Instance"], metadata: Mapping[str, Any]
    ) -> tuple[float, float]:
        """The soft and the strict score of one image."""
        if problem := metadata_problem(metadata, self.detect.names):
            log.error("reward geneval: %s", problem)
            return nan, nan
        counting = metadata["tag"] == "counting"
        threshold = self.counting_threshold if counting else self.threshold
        kept = most_confident(instances, threshold, self.max_objects)
        colored = {clause["class"] for clause in metadata["include"] if "color" in clause}
        objects = [
            detection
            for name, group in groupby(kept, key=lambda item: item.name)
            for detection in self._detections(image, list(group), name in colored)
        ]
        soft = soft_score(objects, metadata, relation_credit=self.relation_credit)
        return soft, strict_score(objects, metadata)

    def _detections(
        self, image: Tensor, items: Sequence["Instance"], colored: bool
    ) -> list[Detection]:
        """Objects of one class, with colours only where the prompt asks for one."""
        colors = self.name_colors(image, items) if colored else [None] * len(items)
        pairs = zip(items, colors, strict=True)
        return [Detection(item.name, color, item.box) for item, color in pairs]


def most_confident(
    instances: Sequence["Instance"], threshold: float, most: int
) -> "list[Instance]":
    """At most `most` instances of each class with a confidence above `threshold`.

    Ordered by class name, then by falling confidence.
    """
    confident = sorted(
        (item for item in instances if item.confidence > threshold),
        key=lambda item: (item.name, -item.confidence),
    )
    classes = groupby(confident, key=lambda item: item.name)
    return [item for _, group in classes for item in list(group)[:most]]


@dataclass(frozen=True)
class Instance:
    """A detected object: class, confidence in [0, 1], mask `[H, W]` bool, and box.

    The box is (left, top, right, bottom) in pixels, the last two exclusive.
    """

    name: str
    confidence: float
    mask: Tensor
    box: tuple[float, float, float, float]


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
        """Unit embeddings of the colours of a class, `[colours, D]`, means over `TEMPLATES`."""
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
