"""The sampler of language models that learn from completions of the data."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from rlfactory.prompts.base import Prompt, Prompts
from rlfactory.rollout import Tokens
from rlfactory.train.sampling.base import members_of
from rlfactory.train.sampling.text import TextSampler
from rlfactory.utils.pytree import index_rows, to_device

Completion = Callable[[Prompt, int], tuple[str, str]]
"""From a prompt and the number of a sample in its group, the text given and the one learned."""


class GivenSampler(TextSampler):
    """Takes the samples of a rollout from the data, and draws those of evaluations.

    Args:
        completion: what a row of the data holds.
        options: those of `TextSampler`.
    """

    def __init__(self, model: Any, *, completion: Completion, **options: Any) -> None:
        super().__init__(model, **options)
        self.completion = completion

    @property
    def of_policy(self) -> TextSampler:
        """See the contract."""
        return TextSampler(
            self.model, dynamics=self.dynamics, batch=self.batch, advance=self.advance
        )

    def check_rows(self, prompts: Prompts) -> None:
        """See the contract."""
        for prompt in prompts.known():
            self.completion(prompt, 0)  # of a pair it looks at both

    def _rollout(
        self, prompts: Sequence[Prompt], groups: Tensor, index: Tensor, seed: int, iteration: int
    ) -> Iterator[Tokens]:
        """The tokens of the data, with likelihoods and values of 0, as nothing compares with them.

        Completions longer than `dynamics.length` tokens are cut, and have no end.
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
        encoded = self.model.encode_completions(prompts, completions, self.dynamics.length)
        response, mask, ended = (to_device(column, self.model.device) for column in encoded)
        zeros = torch.zeros(response.shape, device=self.model.device)
        return Tokens(prompt, prompt_mask, response, mask, ended, zeros, zeros)
