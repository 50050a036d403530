"""The sampler of image models that learn from pictures of the data."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from rlfactory.algo.ops.preference import PAIR
from rlfactory.prompts.base import Prompt, PromptError, Prompts
from rlfactory.prompts.ops.pictured import pictured, unfitting
from rlfactory.rollout import Condition
from rlfactory.train.sampling.base import computed_ahead, members_of
from rlfactory.train.sampling.image import ImageSampler
from rlfactory.utils.images import from_pil
from rlfactory.utils.pytree import row_chunks


@dataclass(kw_only=True, eq=False)
class GivenImageSampler(ImageSampler):
    """Takes the samples of a rollout from the data, and draws those of evaluations.

    Pictures are resized to the model's resolution, whose aspect ratio they have.

    Attributes:
        completion: from a row of the data and the number of a sample in its group, the text that is
            given, and the picture that is learned, in any form that `pictured` takes.
        folder: what paths of pictures are relative to.
        size: height and width to which pictures are resized; None: they have the model's.
    """

    completion: Callable[[Prompt, int], tuple[str, Any]]
    folder: Path
    size: tuple[int, int] | None

    @property
    def of_policy(self) -> ImageSampler:
        return ImageSampler(**{f.name: getattr(self, f.name) for f in fields(ImageSampler)})

    def check_rows(self, prompts: Prompts) -> None:
        """See the contract; of the pictures it reads the headers."""
        for prompt in prompts.known():
            for member in range(PAIR):
                _, picture = self.completion(prompt, member)
                if found := unfitting(picture, self.folder, self.size):
                    raise PromptError(f"the prompt {prompt.text[:60]!r}: {found[0]}")

    def _samples(
        self,
        prompts: Sequence[Prompt],
        groups: Tensor,
        selected: Tensor,
        conditions: Condition,
        seed: int,
        iteration: int,
    ) -> Iterator[tuple[Tensor, dict[str, Any]]]:
        """The pictures of the data, and their latents."""
        del conditions, seed, iteration
        members = members_of(groups)
        chunks = [*row_chunks(len(selected), self.batch)]

        def read(chunk: Tensor) -> Tensor:
            numbers = selected[chunk].tolist()
            own = [(prompts[number], members[number]) for number in numbers]
            return torch.stack([self._picture(prompt, member) for prompt, member in own])

        # the next pictures are read while these are encoded
        pictures = computed_ahead(partial(read, chunk) for chunk in chunks)
        for chunk, images in zip(chunks, pictures, strict=True):
            yield chunk, {"latents": self.model.encode_images(images), "images": images}

    def _picture(self, prompt: Prompt, member: int) -> Tensor:
        """A picture `[3, H, W]` uint8, of the model's resolution."""
        text, source = self.completion(prompt, member)
        try:
            picture = pictured(text, source, self.folder).open()
        except ValueError as error:  # it was there when the rows were checked
            raise PromptError(f"the prompt {prompt.text[:60]!r}: {error}") from error
        if self.size is not None:
            height, width = self.size
            picture = picture.resize((width, height), Image.Resampling.LANCZOS)
        return from_pil(picture)
