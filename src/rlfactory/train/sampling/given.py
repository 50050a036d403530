"""The samplers of models that learn from completions or pictures of the data."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from rlfactory.algo.base import PAIR
from rlfactory.model.lm.tokenized import padded_completions, padded_prompts
from rlfactory.prompts.base import Prompt, PromptError
from rlfactory.prompts.ops.pictured import pictured, unfitting
from rlfactory.rollout import Condition, Tokens
from rlfactory.train.sampling.base import RolloutRequest, computed_ahead
from rlfactory.train.sampling.image_sampler import ImageSampler
from rlfactory.train.sampling.text_sampler import TextSampler
from rlfactory.utils.images import from_pil
from rlfactory.utils.pytree import index_rows, row_chunks, to_device

Completion = Callable[[Prompt, int], tuple[str, str]]
"""From a prompt and the number of a sample in its group, the text given and the one learned."""
PAD = 0
"""Any id: nothing reads a token that a mask leaves out."""
CHECKED = 1000
"""Rows that are encoded together when they are checked."""
log = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False)
class GivenSampler(TextSampler):
    """Takes the samples of a rollout from the data, and draws those of evaluations.

    Attributes:
        completion: what a row of the data holds.
        length: the most tokens of a completion; None: as many as fit into the context.
        members: the completions of a row.
        answers_alone: whether thoughts of a completion are given after the prompt, and not learned.
    """

    completion: Completion
    length: int | None = None
    members: int = 1
    answers_alone: bool = False

    def check_rows(self, rows: Iterable[Prompt]) -> None:
        """See the contract; says how many completions are cut.

        Raises:
            PromptError: also where the two completions of a pair are equal once they are cut.
            ModelError: a row can't be written, or has no room.
        """
        left, cut = iter(rows), 0
        while some := [*islice(left, CHECKED)]:
            pairs = [self.completion(p, member) for p in some for member in range(self.members)]
            given, learned = [text for text, _ in pairs], [text for _, text in pairs]
            ids, mask, ended = self.model.encode_completions(given, learned, self.length)
            cut += int((~ended).sum())
            if self.answers_alone:
                thoughts = self.model.thought_lengths(given, learned)
                _require_answers(some, thoughts, mask.sum(1).tolist())
            ids = ids.where(mask, -1)
            same = (ids[:: self.members] == ids[self.members - 1 :: self.members]).all(1)
            if self.members > 1 and same.any():
                number = int(same.nonzero()[0])
                raise PromptError(
                    f"the prompt {some[number].text[:60]!r}: its two completions are equal in the"
                    f" {int(mask[number * self.members].sum())} tokens that are learned; type a"
                    " larger algo.length, or remove the row"
                )
        if cut:
            by = "the model's context" if self.length is None else f"algo.length={self.length}"
            log.warning("%d completions that are learned are cut by %s, and have no end", cut, by)

    def _rollout(self, request: RolloutRequest) -> Iterator[Tokens]:
        """The tokens of the data, with likelihoods and values of 0: nothing compares with them."""
        # all rows at once, so that batches have the same width on every rank
        whole = self._tokens_of([self.completion(*member) for member in request.members])
        for chunk in self._chunks(request.index):
            self.advance(len(chunk))
            yield index_rows(whole, request.index[chunk]).measured()

    def _tokens_of(self, pairs: Sequence[tuple[str, str]]) -> Tokens:
        prompts, completions = [given for given, _ in pairs], [learned for _, learned in pairs]
        prompt, prompt_mask = self.model.encode(prompts)
        encoded = self.model.encode_completions(prompts, completions, self.length)
        if self.answers_alone:
            lengths = self.model.thought_lengths(prompts, completions)
            (prompt, prompt_mask), encoded = after_thoughts(prompt, prompt_mask, encoded, lengths)
        response, mask, ended = (to_device(column, self.model.device) for column in encoded)
        zeros = torch.zeros(response.shape, device=self.model.device)
        return Tokens(prompt, prompt_mask, response, mask, ended, zeros, zeros)


def _require_answers(rows: Sequence[Prompt], thoughts: Sequence[int], kept: Sequence[int]) -> None:
    """PromptError unless something follows the thoughts in the tokens that are kept of each row."""
    for row, number, most in zip(rows, thoughts, kept, strict=True):
        if number >= most:
            raise PromptError(
                f"the prompt {row.text[:60]!r}: of its completion's {most} tokens that fit the"
                f" first {number} are thoughts, so no answer is learned; type a larger algo.length,"
                " algo.train_on=completion, or remove the row"
            )


def after_thoughts(
    prompt: Tensor,
    prompt_mask: Tensor,
    completion: tuple[Tensor, Tensor, Tensor],
    lengths: Sequence[int],
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]:
    """Prompts and completions with the first `lengths` tokens of these at the end of those.

    Args:
        prompt: token ids `[B, P]`, padded on the left, with `prompt_mask`.
        completion: token ids `[B, G]`, padded on the right, their mask, and whether they end.
    """
    ids, mask, ended = completion
    given = [row[real].tolist() for row, real in zip(prompt.cpu(), prompt_mask.cpu(), strict=True)]
    whole = [row[real].tolist() for row, real in zip(ids, mask, strict=True)]
    rows = [*zip(given, whole, lengths, strict=True)]
    padded, real = padded_prompts([[*first, *then[:n]] for first, then, n in rows], PAD)
    learned = [then[n:] for _, then, n in rows]
    rest, own, _ = padded_completions(learned, [*map(len, learned)], PAD)
    shown = to_device(padded, prompt.device), to_device(real, prompt.device)
    return shown, (rest, own, ended)


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

    def check_rows(self, rows: Iterable[Prompt]) -> None:
        """See the contract; of the pictures it reads the headers."""
        for prompt in rows:
            for member in range(PAIR):
                _, picture = self.completion(prompt, member)
                if found := unfitting(picture, self.folder, self.size):
                    raise PromptError(f"the prompt {prompt.text[:60]!r}: {found[0]}")

    def _samples(
        self, request: RolloutRequest, conditions: Condition
    ) -> Iterator[tuple[Tensor, dict[str, Any]]]:
        """The pictures of the data, and their latents."""
        members = index_rows(request.members, request.index)
        chunks = [*row_chunks(len(members), self.batch)]

        def read(chunk: Tensor) -> Tensor:
            return torch.stack([self._picture(*member) for member in index_rows(members, chunk)])

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
