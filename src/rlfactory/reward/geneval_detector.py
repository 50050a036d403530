"""The objects in a picture, as Mask2Former sees them."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import Mask2FormerForUniversalSegmentation, Mask2FormerImageProcessorPil

from rlfactory.reward.geneval_metadata import OBJECTS
from rlfactory.reward.pretrained import loading, whole_model
from rlfactory.zoo.models import resolve

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Instance:
    """One object: its class, how certain it is, its mask `[H, W]` bool, and its box."""

    name: str
    certainty: float
    mask: Tensor
    box: Box


class Detector:
    """Instances by `Mask2FormerForUniversalSegmentation`; RewardError where `path` holds none.

    Pictures are resized until their shorter side has `side` pixels. `names` are the classes: those
    of COCO as GenEval calls them where there are 80, otherwise the model's own.
    """

    def __init__(self, path: str, device: torch.device, *, dtype: torch.dtype, side: int) -> None:
        self.device = device
        size = {"shortest_edge": side, "longest_edge": round(side * 5 / 3)}
        with loading("reward.path", path, "a Mask2Former") as locate:
            place = locate(resolve(path, "config.json"))
            self.model = whole_model(Mask2FormerForUniversalSegmentation, place, dtype).to(device)
            self.processor = Mask2FormerImageProcessorPil.from_pretrained(place, size=size)
        labels = self.model.config.id2label
        own = tuple(str(labels[i]) for i in range(self.model.config.num_labels))
        # the published weights spell some of them as older data sets did: tvmonitor, sofa
        self.names = OBJECTS if len(own) == len(OBJECTS) else own

    @torch.inference_mode()
    def __call__(self, images: Tensor, threshold: float) -> list[list[Instance]]:
        """The instances above a certainty in each of the pictures `[B, 3, H, W]` uint8, the most
        certain first.
        """
        inputs = self.processor(list(images.numpy()), return_tensors="pt").to(self.device)
        pixels = inputs["pixel_values"].to(self.model.dtype)
        outputs = self.model(pixel_values=pixels, pixel_mask=inputs["pixel_mask"])
        # what follows makes its maps on the CPU, whatever the device of the masks
        outputs.class_queries_logits = outputs.class_queries_logits.float().cpu()
        outputs.masks_queries_logits = outputs.masks_queries_logits.float().cpu()
        found = self.processor.post_process_instance_segmentation(
            outputs,
            threshold=threshold,
            target_sizes=[tuple(images.shape[-2:])] * len(images),
            return_binary_maps=True,  # the only form in which objects may overlap
        )
        return [self._instances(one["segments_info"], one["segmentation"]) for one in found]

    def _instances(self, segments: list[dict[str, Any]], masks: Tensor) -> list[Instance]:
        if not segments:  # then the masks are one empty map
            return []
        rows = [
            instance(self.names[segment["label_id"]], segment["score"], mask)
            for segment, mask in zip(segments, masks, strict=True)
        ]
        return sorted(rows, key=lambda row: -row.certainty)


def instance(name: str, certainty: float, mask: Tensor) -> Instance:
    """An object whose box is the smallest around its mask, which must not be empty."""
    mask = mask.bool().cpu()
    rows, columns = mask.any(1).nonzero().flatten(), mask.any(0).nonzero().flatten()
    box = (columns[0].item(), rows[0].item(), columns[-1].item() + 1, rows[-1].item() + 1)
    return Instance(name, certainty, mask, box)
