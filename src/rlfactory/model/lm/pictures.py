"""Pictures in the prompts of a vision-language model: their token ids, positions and embeddings."""

from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor

from rlfactory.model.lm.generate import positions_of
from rlfactory.prompts.ops.pictured import PicturedText, picture_size
from rlfactory.utils.errors import ModelError
from rlfactory.utils.pytree import to_device

KEPT = 256
"""Pictures whose embeddings are kept: of Qwen2.5-VL-7B at 1,280 tokens, 9 MB each in bfloat16."""
DIGITS = 15
"""Hexadecimal digits of a picture's number: 60 bits, so that no two pictures have the same."""


class Pictures:
    """Inputs of a Qwen2.5-VL with a frozen vision tower in the place of the picture of a prompt.

    A picture's tokens have an id from `first` on, that no vocabulary has and that follows from the
    picture's file. So token ids say all of a prompt: equal ones are the same text with the same
    picture, and what is kept of a rollout needs no other tensors. The ids are replaced where they
    are embedded.
    """

    def __init__(self, network: Any, processor: Any, first: int) -> None:
        self.network, self.processor, self.first = network, processor, first
        self.placeholder: int = network.config.image_token_id
        self._known: dict[int, PicturedText] = {}
        # one picture at a time, in the dtype of the weights: the same bits in every batch
        self._kept = lru_cache(KEPT)(self._read)

    def of(self, network: Any) -> "Pictures":
        """The same pictures, read by another network."""
        other = Pictures(network, self.processor, self.first)
        other._known = self._known
        return other

    def in_prompt(self, prompt: str, ids: Sequence[int]) -> list[int]:
        """Token ids of a prompt with as many for its picture as it has merged patches. ModelError
        where the text has the mark of a picture itself, or the template leaves it out; or the
        picture can't be read.
        """
        expected = isinstance(prompt, PicturedText)
        if ids.count(self.placeholder) != expected:
            raise ModelError(
                f"the prompt {prompt[:40]!r} has {'one picture' if expected else 'no picture'}, and"
                f" as the model is given it {ids.count(self.placeholder)} marks of one; leave such"
                " marks out of texts, and use the model's own template: model.chat_template=auto"
            )
        if not isinstance(prompt, PicturedText):
            return [*ids]
        number = self.first + int(sha256(prompt.content).hexdigest()[:DIGITS], 16)
        self._known[number] = prompt
        at = ids.index(self.placeholder)
        return [*ids[:at], *[number] * self._count(prompt), *ids[at + 1 :]]

    def _count(self, prompt: PicturedText) -> int:
        """The tokens of a picture, by its file's header."""
        processor = self.processor
        try:
            patches = processor.get_number_of_image_patches(*picture_size(prompt.source))
        except ValueError as error:
            raise ModelError(f"the picture of the prompt {prompt[:40]!r}: {error}") from error
        return int(patches // processor.merge_size**2)

    def positions(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Positions in time, height and width `[B, L, 3]` of tokens of which `mask` `[B, L]` marks
        the real ones, and the first `ids` `[B, P]` are all that have pictures: of a picture's
        tokens their places in it; those that follow go on behind the largest.
        """
        width, text = ids.shape[1], positions_of(mask)[..., None].expand(-1, -1, 3)
        if not (numbers := self._numbers(ids)):
            return text
        grids = torch.stack([self._kept(number)[1] for number in numbers])
        found, behind = self.network.base_model.get_rope_index(
            ids.cpu(),
            (ids >= self.first).int().cpu(),
            image_grid_thw=grids,
            attention_mask=mask[:, :width].cpu(),
        )
        first, behind = (to_device(x, ids.device) for x in (found.movedim(0, -1), behind))
        return torch.cat([first, text[:, width:] + behind[..., None]], dim=1)

    def embedded(self, ids: Tensor) -> Tensor:
        """Embeddings `[B, n, d]` of tokens and pictures."""
        is_picture, numbers = ids >= self.first, self._numbers(ids)
        embed = self.network.get_input_embeddings()
        texts: Tensor = embed(ids.masked_fill(is_picture, self.placeholder))
        if not numbers:
            return texts
        seen = torch.cat([self._kept(number)[0] for number in numbers])
        return texts.masked_scatter(is_picture[..., None], seen.to(texts.dtype))

    def _numbers(self, ids: Tensor) -> list[int]:
        """The number of each row's picture, in order, of the rows that have one."""
        if ids.shape[1] == 1:  # a token that was drawn; the others are read from the device
            return []
        return [number for number in ids.amax(1).tolist() if number >= self.first]

    @torch.no_grad()
    def _read(self, number: int) -> tuple[Tensor, Tensor]:
        """A picture's embeddings `[n, d]`, and its number of patches in time, height and width."""
        read = self.processor(images=[self._known[number].open()], return_tensors="pt")
        (grid,), device = read["image_grid_thw"], self.network.device
        pixels = to_device(read["pixel_values"], device)
        with torch.autocast(device.type, enabled=False):
            seen = self.network.base_model.get_image_features(pixels, to_device(grid[None], device))
        return seen.pooler_output[0], grid
