"""The contract of a reward: samples in, one score per sample and name out."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from rlfactory.prompts.base import Prompt


class RewardError(ValueError):
    """A reward that cannot be set up or used; the message says what to change."""


@dataclass(frozen=True)
class Samples:
    """What a reward sees of `B` samples.

    `groups` is `[B]` int64, equal where the prompt is the same; `images` is `[B, 3, H, W]` uint8,
    on the CPU; `texts` are the completions alone, decoded, cut at the end of text.
    """

    prompts: Sequence[str]
    metadata: Sequence[Mapping[str, Any]]
    groups: Tensor
    images: Tensor | None = None
    texts: Sequence[str] | None = None


class Reward(ABC):
    """A score `r(sample, prompt)`, higher is better.

    `media` is what is judged, `metadata` the keys that each prompt must bring, `main` the name of
    the score that trains (the others are only reported), and `good` what a faultless sample gets.
    `isolated` asks for a process of its own: Python that is bound by the CPU, or that can hang.
    `compares_group` says that a sample alone with its prompt has no score.
    """

    media: ClassVar[Literal["images", "texts"]]
    metadata: ClassVar[tuple[str, ...]] = ()
    good: ClassVar[float | None] = None
    isolated: ClassVar[bool] = False
    compares_group: ClassVar[bool] = False
    main: str

    @abstractmethod
    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores by name, each `[B]` float32, NaN where a sample could not be scored.

        Samples come in whole groups, not always all of an iteration at once.
        """

    @property
    def trains(self) -> Mapping[str, float] | None:
        """The weights of the scores that train, where an advantage shall make one of several."""
        return None

    def normalised(self, scores: Mapping[str, Tensor], groups: Tensor) -> Mapping[str, Tensor]:
        """What trains in the place of an iteration's scores, all `[B]` of them; once an iteration,
        so that statistics may run over iterations.
        """
        del groups
        return scores

    def state_dict(self) -> dict[str, Any]:
        """What must survive a restart, as plain values."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up what `state_dict` gave."""
        del state

    def require(self, prompts: Iterable[Prompt]) -> None:
        """RewardError where one of the prompts of a run lacks what it would be judged by."""
        for prompt in prompts if self.metadata else ():
            missing = [key for key in self.metadata if key not in prompt.metadata]
            if missing:
                raise RewardError(
                    f"the prompt {prompt.text!r} brings no {', '.join(missing)}, which"
                    f" {type(self).__name__} reads of each; give it as a key of its line in a"
                    " .jsonl file (prompts=file prompts.path=FILE.jsonl)"
                )


def pictures(samples: Samples) -> Tensor:
    """The images of `samples`, `[B, 3, H, W]` uint8 on the CPU; TypeError if they are not."""
    images = samples.images
    if images is None:
        raise TypeError("this reward judges images, but the samples have none")
    if images.ndim != 4 or images.shape[1] != 3 or images.dtype != torch.uint8 or images.is_cuda:
        found = f"{images.dtype} {list(images.shape)} on {images.device}"
        raise TypeError(f"images must be uint8 [B, 3, H, W] on the CPU, not {found}")
    return images


def completions(samples: Samples) -> Sequence[str]:
    """The `B` texts of `samples`; TypeError if there are none."""
    if samples.texts is None:
        raise TypeError("this reward judges texts, but the samples have none")
    if len(samples.texts) != len(samples.prompts):
        raise TypeError(f"{len(samples.texts)} texts for {len(samples.prompts)} prompts")
    return samples.texts


def judge(reward: Reward, samples: Samples) -> dict[str, Tensor]:
    """The scores of `samples`; RewardError where they break the contract."""
    scores = reward.score(samples)
    check_scores(reward, scores, len(samples.prompts), samples.prompts)
    return scores


def check_scores(
    reward: Reward, scores: object, count: int, prompts: Sequence[str] | None = None
) -> None:
    """Raise RewardError unless `scores` honours the contract for `count` samples."""
    name = type(reward).__name__
    if not isinstance(scores, Mapping):
        found = type(scores).__name__
        raise RewardError(f"{name}: score() must return a dict of tensors by name, not a {found}")
    if reward.main not in scores:
        raise RewardError(f"{name} has no score {reward.main!r}, its main one; it has {[*scores]}")
    for key, score in scores.items():
        if not isinstance(score, Tensor):
            found = type(score).__name__
            raise RewardError(f"{name}: score {key!r} must be float32 [{count}], not a {found}")
        if score.shape != (count,) or score.dtype != torch.float32:
            found = f"{score.dtype} {list(score.shape)}"
            raise RewardError(f"{name}: score {key!r} must be float32 [{count}], not {found}")
        if score.isinf().any():
            first = int(score.isinf().nonzero()[0])
            of = "" if prompts is None else f", for one of the prompt {prompts[first]!r}"
            raise RewardError(f"{name}: score {key!r} is infinite{of}; a failed one is NaN")
