"""The sampler of language models that learn from completions of the data."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rlfactory.prompts.base import Prompt, PromptError, Prompts
from rlfactory.rollout import Tokens
from rlfactory.train.sampling.base import members_of
from rlfactory.train.sampling.text import TextSampler
from rlfactory.utils.pytree import index_rows, to_device

Completion = Callable[[Prompt, int], tuple[str, str]]
"""From a prompt and the number of a sample in its group, the text given and the one learned."""
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
    """

    completion: Completion
    length: int | None = None
    members: int = 1

    @property
    def of_policy(self) -> TextSampler:
        return TextSampler(
            self.model, dynamics=self.dynamics, batch=self.batch, advance=self.advance
        )

    def check_rows(self, prompts: Prompts) -> None:
        """See the contract; says how many completions are cut.

        Raises:
            PromptError: also where the two completions of a pair are equal once they are cut.
            ModelError: a row can't be written, or has no room.
        """
        known, cut = [*prompts.known()], 0
        for first in range(0, len(known), CHECKED):
            rows = known[first : first + CHECKED]
            pairs = [self.completion(p, member) for p in rows for member in range(self.members)]
            given, learned = [text for text, _ in pairs], [text for _, text in pairs]
            ids, mask, ended = self.model.encode_completions(given, learned, self.length)
            cut += int((~ended).sum())
            ids = ids.where(mask, -1)
            same = (ids[:: self.members] == ids[self.members - 1 :: self.members]).all(1)
            if self.members > 1 and same.any():
                number = int(same.nonzero()[0])
                raise PromptError(
                    f"the prompt {rows[number].text[:60]!r}: its two completions are equal in the"
                    f" {int(mask[number * self.members].sum())} tokens that are learned; type a"
                    " larger algo.length, or remove the row"
                )
        if cut:
            by = "the model's context" if self.length is None else f"algo.length={self.length}"
            log.warning("%d completions of the data are cut by %s, and have no end", cut, by)

    def _rollout(
        self, prompts: Sequence[Prompt], groups: Tensor, index: Tensor, seed: int, iteration: int
    ) -> Iterator[Tokens]:
        """The tokens of the data, with likelihoods and values of 0, as nothing compares with them.

        Completions longer than `length` tokens are cut, and have no end.
        """
        del seed, iteration
        members = zip(prompts, members_of(groups), strict=True)
        # all rows at once, so that batches have the same width on every rank
        whole = self._tokens_of([self.completion(prompt, member) for prompt, member in members])
        for chunk in self._chunks(index):
            self.advance(len(chunk))
            yield index_rows(whole, index[chunk]).measured()

    def _tokens_of(self, pairs: Sequence[tuple[str, str]]) -> Tokens:
        prompts, completions = [given for given, _ in pairs], [learned for _, learned in pairs]
        prompt, prompt_mask = self.model.encode(prompts)
        encoded = self.model.encode_completions(prompts, completions, self.length)
        response, mask, ended = (to_device(column, self.model.device) for column in encoded)
        zeros = torch.zeros(response.shape, device=self.model.device)
        return Tokens(prompt, prompt_mask, response, mask, ended, zeros, zeros)
