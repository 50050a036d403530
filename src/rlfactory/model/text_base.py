"""The contract of a text model: encode prompts, sample responses, compute logits and values.

Shapes: B prompts of P tokens, responses of at most G tokens, M real response tokens in a batch
(row after row, without padding), a vocabulary of V tokens.

A constructor's keyword-only parameters are its configuration (`conf/model/NAME.yaml`). Before them
it may name, in any order, the run-time arguments `device` (torch.device), `seed` (int) and
`has_critic` (bool: whether the algorithm reads values), which `train/build.py` passes by name; the
others that `base.py` lists are meant for image models.

Order of calls in a run: constructor; `hardware.prepare` (which may shard `weights`);
`check_lengths` with all prompts; `parameter_groups`; `weights.add` for every set that the algorithm
needs; then in each iteration `encode`, `rollout` and `texts`, and `measure` for each micro-batch;
at checkpoints `export`.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor

from rlfactory.dynamics.token import Token
from rlfactory.model.base import Model
from rlfactory.model.lm.logits import Work
from rlfactory.rollout import Tokens
from rlfactory.utils.errors import ModelError
from rlfactory.utils.sizes import CHUNKS, MAX_LOGITS
from rlfactory.utils.types import Media


class TextModel(Model):
    """A causal language model with a critic.

    Dropout is off: a replayed token has the likelihood that it was drawn with.

    Class attributes (literals: they are also read from the source, without importing torch):
        media: what is generated, "texts".
        process: "tokens"; decides which dynamics fit.
        forward_process: None; there is no diffusion process.
        reads_pictures: whether a prompt may have a picture, which the model reads.
        absent: options of ancestors' constructors that the class has not.

    Attributes:
        weights: the trained parameters, critic included, and the policy's weight sets.
        vocabulary: V, the number of logits of a token.
        may_share_prompts: whether passes may read equal prompts once; not where all ranks make the
            same passes, which `hardware.prepare` sets.
    """

    media: ClassVar[Media] = "texts"
    process: ClassVar[Literal["flow", "vp", "tokens"]] = "tokens"
    forward_process: ClassVar[None] = None
    reads_pictures: ClassVar[bool] = False
    absent: ClassVar[tuple[str, ...]] = ()

    vocabulary: int
    may_share_prompts: bool = True

    @property
    def shares_prompts(self) -> bool:
        """Whether a pass reads equal prompts once; micro-batches then keep them together."""
        return False

    def rows_at_once(self, tokens: int, most: int) -> int:
        """How many responses go through the network together, from 1 to `most`.

        Args:
            tokens: how many tokens of each response have logits.
        """
        return min(most, max(1, self._max_logits // (tokens * self.vocabulary)))

    def logits_at_once(self, count: int) -> int:
        """How many of the `count` tokens of a pass have logits at the same time."""
        if count * self.vocabulary <= self._max_logits:
            return count
        return max(1, self._max_logits // CHUNKS // self.vocabulary)

    @property
    def _max_logits(self) -> int:
        return MAX_LOGITS.get(self.device.type, MAX_LOGITS["cuda"])

    @abstractmethod
    def check_lengths(self, prompts: Sequence[str], length: int) -> frozenset[str]:
        """Check that a response of `length` tokens fits behind each prompt.

        Returns:
            The prompts that are to be left out, as it does not fit and options say so.

        Raises:
            ModelError: it does not, for at least one other prompt.
        """

    @abstractmethod
    def encode(self, prompts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Token ids of prompts, `[B, P]`, padded on the left, and the mask of the real ones.

        Args:
            prompts: texts, and conversations (`prompts.ops.chat.ChatText`).

        Raises:
            ModelError: a prompt is empty, or a conversation that the model has no template for.
        """

    @abstractmethod
    def encode_completions(
        self, prompts: Sequence[str], texts: Sequence[str], length: int | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Token ids of given completions of prompts with their end.

        They are those that follow the prompt's own tokens, as sampling continues these. Each is cut
        after `length` tokens, if that is not None, and where the context ends.

        Returns:
            `[B, G]`, padded on the right; the mask of the real ones; and `[B]`, whether the
            end is among them. All on the CPU.

        Raises:
            ModelError: a prompt leaves no room, or the chat template does not write an answer.
        """

    def thought_lengths(self, prompts: Sequence[str], texts: Sequence[str]) -> list[int]:
        """Of given completions of prompts, not cut, the tokens up to the one that completes the
        first `</think>`; 0 without one.

        Raises:
            ModelError: the model does not tell.
        """
        raise ModelError("algo.train_on=answer: this model tells no thoughts from answers")

    def as_given(self, prompt: str) -> str:
        """A prompt as the model reads it, what a template adds and special tokens included."""
        return str(prompt)

    def as_learned(self, prompt: str, text: str, length: int | None = None) -> str:
        """What is learned of a completion after its prompt, its end included."""
        return str(text)

    @abstractmethod
    def rollout(
        self, prompt: Tensor, prompt_mask: Tensor, dynamics: Token, uniform: Tensor
    ) -> Tokens:
        """Sample responses, with their log-probabilities and values.

        Args:
            prompt: token ids `[B, P]`, from `encode`, with `prompt_mask`.
            dynamics: how a token is drawn from its logits.
            uniform: the random numbers `[B, G]` that decide the draws.

        Raises:
            ModelError: prompt and response do not fit into the context.
        """

    @abstractmethod
    def measure(
        self, tokens: Tokens, work: Work, *columns: Tensor, value_tokens: Tokens | None = None
    ) -> tuple[tuple[Tensor, ...], Tensor, Tensor]:
        """One pass over prompts and responses, with gradient, whose logits need not fit in memory.

        Args:
            work: computes results `[m, ...]` from the float32 logits `[m, V]` before m of the M
                real response tokens, and the same rows of the columns; it is called for
                `logits_at_once` of them at a time.
            columns: tensors `[M, ...]`.
            value_tokens: the same responses by `with_end_state`, where states after the end have
                values too; None: `tokens`.

        Returns:
            The results for all M tokens, the critic's values `[M]` (or of each of `value_tokens`),
            and the hidden states `[M, d]`.

        Raises:
            ModelError: `value_tokens` are given, and the critic is no value model.
        """

    def token_log_probs(
        self, tokens: Tokens, dynamics: Token, value_tokens: Tokens | None = None
    ) -> tuple[Tensor, Tensor]:
        """Log-probabilities `[M]` of the response tokens, and the values, by `measure`."""

        def look_up(logits: Tensor, ids: Tensor) -> tuple[Tensor]:
            return (dynamics.step(logits, next=ids).log_prob,)

        ids = tokens.real(tokens.response)
        (log_probs,), values, _ = self.measure(tokens, look_up, ids, value_tokens=value_tokens)
        return log_probs, values

    @abstractmethod
    def measure_states(self, states: Tensor, work: Work, *columns: Tensor) -> tuple[Tensor, ...]:
        """`measure` for the hidden states of an earlier pass, without the critic."""

    @abstractmethod
    def states_and_projection(self, tokens: Tokens) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """Hidden states `[M, d]`, and the function from rows of them to their logits.

        It keeps the weights that are in use now, and may be called when others are.
        """

    def forward(self, tokens: Tokens) -> tuple[Tensor, Tensor]:
        """Logits `[M, V]` and values `[M]` before each real response token, all at once."""
        (logits,), values, _ = self.measure(tokens, lambda logits: (logits,))
        return logits, values

    @abstractmethod
    def texts(self, tokens: Tokens) -> list[str]:
        """The responses as text, up to their end, without special tokens."""


@torch.no_grad()
def response_log_prob(
    model: TextModel, weights: str, tokens: Tokens, dynamics: Token, batch: int
) -> Tensor:
    """Log-probabilities `[B, G]` of the response tokens under the weight set `weights`, 0 on
    padding, at most `batch` responses in one forward pass; fewer if their logits need it.
    """

    log_probs = torch.zeros_like(tokens.log_prob)
    tokens, size = tokens.measured(), model.rows_at_once(log_probs.shape[1], batch)
    with model.weights(weights):
        for start in range(0, len(log_probs), size):
            rows = slice(start, start + size)
            part = tokens.part(rows)
            found, _ = model.token_log_probs(part, dynamics)
            log_probs[rows, : part.mask.shape[1]] = part.pad(found)
    return log_probs
