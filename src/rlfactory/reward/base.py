"""The contract of a reward: samples in, scores by name out, one number per sample.

A reward is a class with `media`, `main` and `score`; `length.py` (texts) and `jpeg.py` (images)
are complete examples. `__init__` takes the options as keyword-only parameters, which are the keys
of the YAML file, and raises RewardError where what they name can't be loaded. The one run-time
object that it may name, as a positional parameter, is `device: torch.device`, where networks
compute. Rewards inside other rewards (`rank.Rank`, `combine.Combine`) are built first and get it
too.

A run calls the methods in this order:

1. `__init__` once for each distinct configuration; in a subprocess with
   `scoring.background=process`, or, with `scoring.background=thread`, if `wants_subprocess`.
2. `check_prompts` with all prompts known in advance and the held-out ones; then `score_weights`.
3. `load_state_dict`, where a run resumes.
4. In each iteration `score`, batch after batch in complete groups, while further samples are drawn
   (`scoring.background`). One call at a time, so it need not be thread-safe.
5. In each iteration `normalise` once, on every rank, with the scores of all ranks.
6. `state_dict` at each checkpoint.

An evaluation calls `score` alone, with one sample per evaluation prompt; equal prompts are a group.
Networks must be attributes (`self.model`): `scoring.offload=true` searches those for networks to
move between the device and the CPU.

A static method `validate(options, run)` may check options before a run (`utils.types.Faults`).
"""

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence, Set, Sized
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from numbers import Number, Real
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from rlfactory.hardware.torch_defaults import kept_defaults
from rlfactory.prompts.base import Prompt
from rlfactory.prompts.ops.pictured import PicturedText
from rlfactory.utils.errors import UserError
from rlfactory.utils.images import from_pil
from rlfactory.utils.types import Media

Direction = Literal["higher", "lower"]
"""What is better of a score."""


class RewardError(UserError, ValueError):
    """A reward that cannot be set up or used; the message says what to change."""


def not_installed(reward: str, extra: str) -> RewardError:
    """The error of a reward whose package is missing, which an extra of this one's brings."""
    return RewardError(
        f"reward={reward} needs a package that is not installed; type"
        f" pip install 'rlfactory[{extra}]'"
    )


Metadata = Sequence[Mapping[str, Any]]
"""What each prompt's source says about it, by key."""


@dataclass(frozen=True)
class Samples:
    """`B` samples, as a reward gets them.

    Attributes:
        prompts: The `B` prompts as texts; each a `PicturedText` where the model edits pictures.
        metadata: What each prompt's source says about it, by key.
        groups: `[B]` int64, equal for samples of one prompt in one iteration.
        images: `[B, 3, H, W]` uint8 on the CPU; None where texts are generated.
        texts: The `B` completions without their prompts, decoded, cut at the end of text; None
            where images are generated.
        ended: Whether each completion ended by itself rather than at the length limit, `[B]` bool
            on the CPU; None where that is not known.
    """

    prompts: Sequence[str]
    metadata: Metadata
    groups: Tensor
    images: Tensor | None = None
    texts: Sequence[str] | None = None
    ended: Tensor | None = None


class Reward(ABC):
    """Scores `r(sample, prompt)`; higher is better.

    Class attributes are read from the source, without importing the module, when a plan is checked:
    give them as literals.

    Attributes:
        media: What is scored, "images", "videos" or "texts". Of a video model, a reward of images
            scores some frames, and a video has their mean.
        metadata: The keys that each prompt's metadata must have.
        metadata_options: The options whose values are such keys too; a reward sets its own
            `metadata` to them.
        model_options: The options that name a model of transformers: a folder with its config.json,
            `zoo:NAME` or a hub id.
        prompt_feature: What `check_prompts` looks for in each prompt, `quoted_word` or
            `coco_objects`, so that a plan can look for it too; None for nothing.
        best_score: The highest score there is, that of a perfect sample; None if unbounded or
            unknown.
        wants_subprocess: Whether to score in a subprocess: for Python code that is bound by the
            CPU, or that can hang.
        compares_group: Whether a score compares the samples of a group, so that one sample per
            prompt is not enough.
        published_size: The row of config/memory/rewards.json that has the size of its network,
            wherever the weights lie; None where options name the network.
        made_of: The option whose entries are rewards that it combines; None for a single one.
        gives_scores: Whether there are scores at all; without any, `score` is not called.
        differentiable: Whether `score_pixels` gives the main score with a gradient.
        main: The name of the score that trains; the others are reported only.
        absent: Options of ancestors' constructors that the class has not.
        better: Of scores besides `main`, whether higher or lower is better, as reports say it.
            Nothing is marked as best in a score that is not named.
    """

    media: ClassVar[Media]
    metadata: ClassVar[tuple[str, ...]] = ()
    metadata_options: ClassVar[tuple[str, ...]] = ()
    model_options: ClassVar[tuple[str, ...]] = ()
    prompt_feature: ClassVar[str | None] = None
    best_score: ClassVar[float | None] = None
    wants_subprocess: ClassVar[bool] = False
    compares_group: ClassVar[bool] = False
    published_size: ClassVar[str | None] = None
    made_of: ClassVar[str | None] = None
    gives_scores: ClassVar[bool] = True
    differentiable: ClassVar[bool] = False
    absent: ClassVar[tuple[str, ...]] = ()
    better: ClassVar[Mapping[str, Direction]] = {}
    main: str

    @abstractmethod
    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Score samples.

        Args:
            samples: Complete groups, not always all of an iteration at once.

        Returns:
            Scores by name, `main` among them: each `[B]` float32 on the CPU, or in another form
            that `as_scores` takes; NaN for a sample that could not be scored. A run stops where
            more than `max_failed` of them are NaN.

        Raises:
            RewardError: The reward cannot score at all; the run ends.
        """

    def score_pixels(self, pixels: Tensor, prompts: Sequence[str], metadata: Metadata) -> Tensor:
        """The main score, with its gradient, of images that are not rounded to bytes.

        For algorithms that follow the gradient of a reward (`algo.draft`), which call it on each
        rank and may call it again in the backward pass: it has no state and nothing random.

        Args:
            pixels: `[B, 3, H, W]` float in [0, 1] with gradient, on any device.
            prompts: The `B` prompts as texts.
            metadata: What each prompt's source says about it, by key.

        Returns:
            `[B]` on any device, NaN for none. Of rounded pixels it is what `score` gives, up to
            what preprocessing rounds.

        Raises:
            RewardError: The reward is not `differentiable`.
        """
        raise RewardError(f"{type(self).__name__} has no gradient: it is not `differentiable`")

    @property
    def score_weights(self) -> Mapping[str, float] | None:
        """The weights of several scores for an advantage that combines them (`advantage=gdpo`).

        Returns:
            Weights by score name; None where `main` alone trains.
        """
        return None

    def normalise(self, scores: Mapping[str, Tensor], groups: Tensor) -> Mapping[str, Tensor]:
        """The scores that train, in place of those that are reported.

        Called once an iteration, so statistics may run over iterations.

        Args:
            scores: An iteration's scores on all ranks by name, each `[B]` float32.
            groups: Their groups, `[B]` int64.

        Returns:
            Scores of the same names and shapes; by default the same ones.
        """
        return scores

    def state_dict(self) -> dict[str, Any]:
        """The state that a resumed run needs.

        Returns:
            Plain values (numbers, strings, lists, mappings); empty by default. A reward with state
            cannot score in a subprocess.
        """
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state.

        Args:
            state: What `state_dict` returned.
        """
        return

    def check_prompts(self, prompts: Iterable[Prompt]) -> None:
        """Check before the run that prompts have what the reward reads of them.

        Args:
            prompts: Prompts known in advance, for training and for evaluation.

        Raises:
            RewardError: A prompt lacks a key of `metadata`.
        """
        for prompt in prompts if self.metadata else ():
            missing = [key for key in self.metadata if key not in prompt.metadata]
            if missing:
                raise RewardError(
                    f"the prompt {prompt.text!r}: its metadata lacks {', '.join(missing)}, which"
                    f" {type(self).__name__} reads; give it as a key of its line in a .jsonl file"
                    " (prompts=file prompts.path=FILE.jsonl)"
                )


def directions(reward: Reward) -> dict[str, Direction]:
    """The better direction of each score, as far as the reward says it; higher of its main one."""
    return {**declared_better(reward), reward.main: "higher"}


def declared_better(reward: Reward) -> Mapping[str, Direction]:
    """The reward's `better`; RewardError where a value is neither `higher` nor `lower`."""
    for score, direction in reward.better.items():
        if direction not in get_args(Direction):
            raise RewardError(
                f"{type(reward).__name__}.better[{score!r}] is {direction!r}; allowed is higher or"
                " lower, and a score of which neither is better is left out"
            )
    return reward.better


def require_sources(samples: Samples) -> list[Tensor]:
    """The pictures that were edited, `[3, h, w]` uint8 each; RewardError if a prompt has none."""
    lacking = [text for text in samples.prompts if not isinstance(text, PicturedText)]
    if lacking:
        raise RewardError(
            f"the prompt {lacking[0][:60]!r} has no picture, and this reward compares each sample"
            " with the one that was edited; type prompts=edits, or reward.shows_source=false"
        )
    return [from_pil(t.open()) for t in samples.prompts if isinstance(t, PicturedText)]


def require_images(samples: Samples) -> Tensor:
    """The images of `samples`, `[B, 3, H, W]` uint8 on the CPU; TypeError if they are not."""
    images = samples.images
    if images is None:
        raise TypeError("this reward scores images, but the samples have none")
    if images.ndim != 4 or images.shape[1] != 3 or images.dtype != torch.uint8 or images.is_cuda:
        actual = f"{images.dtype} {list(images.shape)} on {images.device}"
        raise TypeError(f"images must be uint8 [B, 3, H, W] on the CPU, not {actual}")
    return images


def require_videos(samples: Samples) -> Tensor:
    """The videos of `samples`, `[B, F, 3, H, W]` uint8 on the CPU; TypeError if they are not."""
    videos = samples.images
    if videos is None or videos.ndim != 5 or videos.shape[2] != 3 or videos.dtype != torch.uint8:
        actual = "none" if videos is None else f"{videos.dtype} {list(videos.shape)}"
        raise TypeError(f"this reward scores videos, uint8 [B, F, 3, H, W], not {actual}")
    return videos


def require_texts(samples: Samples) -> Sequence[str]:
    """The `B` completions of `samples`; TypeError if there are none."""
    if samples.texts is None:
        raise TypeError("this reward scores texts, but the samples have none")
    if len(samples.texts) != len(samples.prompts):
        raise TypeError(f"{len(samples.texts)} texts for {len(samples.prompts)} prompts")
    return samples.texts


def score_checked(reward: Reward, samples: Samples) -> dict[str, Tensor]:
    """The scores of `samples`; RewardError where they break the contract."""
    if not reward.gives_scores:
        return {}
    with kept_defaults():
        scores = reward.score(samples)
    return check_scores(reward, scores, len(samples.prompts), samples.prompts)


def check_scores(
    reward: Reward, scores: object, count: int, prompts: Sequence[str] | None = None
) -> dict[str, Tensor]:
    """The scores of `count` samples by name, each `[count]` float32 on the CPU. RewardError where
    `scores` is no mapping, lacks the main score, or holds one that `as_scores` refuses; with
    `prompts`, it names the prompt.
    """
    name = type(reward).__name__
    if not isinstance(scores, Mapping):
        if inspect.iscoroutine(scores):
            scores.close()  # it would warn that it was never awaited
        kind = type(scores).__name__
        raise RewardError(f"{name}: score() must return a dict of tensors by name, not a {kind}")
    if reward.main not in scores:
        raise RewardError(f"{name} has no score {reward.main!r}, its main one; it has {[*scores]}")
    return {str(k): as_scores(v, count, f"{name}: score {k!r}", prompts) for k, v in scores.items()}


def as_scores(
    values: object, count: int, name: str, prompts: Sequence[str] | None = None
) -> Tensor:
    """Scores as people return them, as `[count]` float32 on the CPU: numbers in a list, an array, a
    tensor, a series or an iterator; None and missing values are NaN.

    RewardError, which begins with `name` and has the sample's prompt, where there are not `count`
    values, or one is no number, or infinite.
    """
    wanted = f"wanted are {count} numbers, one a sample, in a list, an array or a tensor"
    kind = type(values).__name__
    if isinstance(values, Tensor):  # in float64, as numpy has no bfloat16
        values = values.detach().cpu().to_dense()
        values = values.double() if values.is_floating_point() else values
    if hasattr(values, "__array__"):  # of numpy, torch, pandas, polars, jax
        array = np.ma.asarray(values)  # masked ones are missing
        if array.shape not in ((count,), (count, 1)):
            raise RewardError(f"{name}: there came a {kind} {list(array.shape)}; {wanted}")
        values = array.reshape(count).tolist()
    if not isinstance(values, Iterable) or isinstance(values, str | bytes | Mapping | Set):
        came = repr(values) if isinstance(values, Number | None) else f"a {kind}"
        raise RewardError(f"{name}: there came {came}; {wanted}")
    listed = [*islice(values, count + 1)]  # an iterator may have no end
    if len(listed) != count:
        number = len(values) if isinstance(values, Sized) else f"{len(listed)} or more"
        raise RewardError(f"{name}: there came {number} of them; {wanted}")
    of = [f" (of the prompt {prompt!r:.60})" for prompt in prompts or ()] or [""] * count
    numbers = [_number(v, f"{name}: score {i}", of[i]) for i, v in enumerate(listed)]
    return torch.tensor(numbers, dtype=torch.float32, device="cpu")


def _number(value: object, place: str, of: str) -> float:
    """A score; NaN for None, NaN and pandas' NA."""
    if isinstance(value, Tensor | np.ndarray | np.generic) and math.prod(value.shape) == 1:
        value = value.item()
    if value is None or type(value).__name__ == "NAType":
        return math.nan
    if not isinstance(value, Real | Decimal):
        raise RewardError(f"{place} is {value!r:.60}{of}; a score is a number, or None")
    try:
        number = float(value)
    except OverflowError:  # an int beyond float64
        number = math.inf
    if abs(number) > torch.finfo(torch.float32).max:
        raise RewardError(
            f"{place} is {number}; a score is finite in float32, and a failed one None"
        )
    return number
