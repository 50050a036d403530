"""Image classifiers as rewards: whether a picture is of the class that its prompt names."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor
from transformers import AutoImageProcessor, AutoModelForImageClassification

from rlfactory.model.pipelines.local_models import resolve
from rlfactory.prompts.base import Prompt
from rlfactory.reward.backbones.pretrained import load_full_model, loading, read_weights
from rlfactory.reward.base import Direction, Reward, RewardError, Samples, require_images
from rlfactory.utils.types import PositiveInt


class ImageClass(Reward):
    """The probability of the class that the prompt names, or its log-odds, reported under `name`.

    `NAME_top1` is 1 where no other class is more probable; `NAME_frechet`, one number for all
    pictures that are scored together, is how far their logits are from those of real ones. A class
    has the first of its names ("tench" of "tench, Tinca tinca"); of those in a prompt the longest
    counts. RewardError where the classifier can't be loaded, or a prompt names no class.
    """

    media = "images"
    model_options = ("path",)

    def __init__(
        self,
        device: torch.device,
        *,
        path: str,
        name: str = "image_class",
        output: Literal["prob", "log_odds"] = "prob",
        real: str | None = None,
        batch_size: PositiveInt = 64,
    ) -> None:
        """
        Args:
            path: An image classifier of transformers: zoo:NAME, a folder or a hub id.
            name: The score's name in metrics, tables and figures.
            output: prob | log_odds, which is unbounded.
            real: A .safetensors file with the logits `[N, classes]` of real pictures, or its name
                in the classifier's folder; null: no NAME_frechet.
            batch_size: Images in one forward pass.
        """
        self.main = name
        better: dict[str, Direction] = {f"{name}_top1": "higher", f"{name}_frechet": "lower"}
        self.better = better  # type: ignore[misc]
        self.device, self.output, self.batch_size = device, output, batch_size
        with loading("reward.path", path, "a classifier of images") as locate:
            source = locate(resolve(path, "config.json"))
            model = load_full_model(AutoModelForImageClassification, source, torch.float32)
            self.processor = AutoImageProcessor.from_pretrained(source, backend="pil")
        self.real = None
        if real is not None:
            shipped = Path(source) / real
            file = str(shipped) if shipped.is_file() else real
            self.real = read_weights(file, key="reward.real")["logits"]
        self.model = model.to(device)
        names = self.model.config.id2label
        self.classes = {str(names[i]).partition(",")[0].lower(): int(i) for i in names}

    def check_prompts(self, prompts: Iterable[Prompt]) -> None:
        """RewardError that gives the first prompt which names no class."""
        for prompt in prompts:
            self.class_of(prompt.text)

    def class_of(self, text: str) -> int:
        """The number of the class that a prompt names; RewardError where it names none."""
        found = [n for n in self.classes if re.search(rf"\b{re.escape(n)}\b", text.lower())]
        if not found:
            some = ", ".join([*self.classes][:10])
            raise RewardError(f"the prompt {text!r} names no class of {self.main}'s: {some}")
        return self.classes[max(found, key=len)]

    @torch.inference_mode()
    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]`: in [0, 1] for probabilities, otherwise unbounded."""
        images = require_images(samples)
        wanted = torch.tensor([self.class_of(text) for text in samples.prompts])[:, None]
        logits = torch.cat([self._logits(part) for part in torch.split(images, self.batch_size)])
        others = logits.scatter(1, wanted, -torch.inf).logsumexp(1)
        odds = logits.gather(1, wanted)[:, 0] - others
        score = odds if self.output == "log_odds" else odds.sigmoid()
        scores = {self.main: score, f"{self.main}_top1": (logits.argmax(1) == wanted[:, 0]).float()}
        if self.real is not None:
            distance = frechet_distance(logits, self.real)
            scores[f"{self.main}_frechet"] = distance.float().expand(len(logits))
        return scores

    def _logits(self, images: Tensor) -> Tensor:
        pixels = self.processor([*images], return_tensors="pt")["pixel_values"]
        logits: Tensor = self.model(pixels.to(self.device)).logits
        return logits.float().cpu()


def frechet_distance(a: Tensor, b: Tensor) -> Tensor:
    """The squared Fréchet distance of two samples `[N, D]` and `[M, D]`, each taken as normal:
    |m - n|^2 + tr(S + T - 2 (S T)^(1/2)), in float64 (arXiv 1706.08500); NaN for a single row.
    """
    if min(len(a), len(b)) < 2:
        return torch.tensor(torch.nan)
    a, b = a.double(), b.double()
    s, t = a.T.cov(), b.T.cov()
    # S T is similar to a positive semidefinite matrix: its eigenvalues are real, and not negative
    root = torch.linalg.eigvals(s @ t).real.clamp(min=0).sqrt().sum()
    return (a.mean(0) - b.mean(0)).square().sum() + s.trace() + t.trace() - 2 * root
