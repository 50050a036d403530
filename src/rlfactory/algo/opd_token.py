"""On-policy distillation of texts (arXiv 2306.13649): a teacher's distributions on the student's
own responses.
"""

from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from rlfactory.algo.base import Loss
from rlfactory.algo.ops.completions import completion_items, with_unit_advantages
from rlfactory.algo.ops.teachers import Taught, TaughtTokens
from rlfactory.algo.ops.token_kl import estimate_kl, exact_kl
from rlfactory.algo.ops.token_outputs import token_outputs
from rlfactory.batch import TokenBatch
from rlfactory.dynamics.token import Token
from rlfactory.model.lm.tokenized import IMPOSSIBLE
from rlfactory.model.text_base import TextModel
from rlfactory.rollout import Rollout, Tokens
from rlfactory.utils.pytree import require


class TextOPD(Taught[TextModel, TokenBatch, TokenBatch]):
    """With p the student's next-token distribution and q its teacher's, at the tokens of the
    student's own responses,

        reverse  loss = mean KL(p || q)      the exact sum over the vocabulary
        forward  loss = mean KL(q || p)
        sampled  loss = mean (log p(y_t) - log q(y_t))^2 / 2,

    whose gradient is that of REINFORCE with `log q - log p` of the token drawn as advantage, as
    Thinking Machines and verl have it; in expectation it is that of `reverse`. Scores are only
    reported.

    Args:
        divergence: See the formulas.
    """

    requires = "tokens"
    uses_critic = False

    def __init__(
        self,
        dynamics: Token,
        *,
        divergence: Literal["reverse", "forward", "sampled"] = "reverse",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.dynamics = dynamics
        self.divergence = divergence

    def compute_advantages(self, rollout: Rollout, main: str) -> Rollout:
        """An advantage of 1 for each token."""
        return with_unit_advantages(rollout)

    def training_items(self, rollout: Rollout, model: TextModel, **_: int) -> TokenBatch:
        items = completion_items(rollout, model, TaughtTokens)
        return replace(items, teachers=self.numbers(rollout))

    def loss(self, model: TextModel, batch: TokenBatch) -> Loss:
        """The class's formula; the metric `kl/teacher` is its value by token."""
        tokens, teacher = batch.tokens, self.teacher_of(batch)
        outputs, _ = token_outputs(model, self.dynamics, tokens)
        if self.divergence == "sampled":
            with torch.no_grad():
                taught, _ = teacher.token_log_probs(tokens, self.dynamics)
            losses = estimate_kl(outputs.log_prob - taught, "k2")
        elif outputs.log_probs is not None:
            with torch.no_grad():
                logits = teacher.forward(tokens)[0]
            losses = self._divergence(outputs.log_probs, logits)
        else:
            losses = self._in_chunks(model, teacher, tokens, require(outputs.states, "states"))
        metrics = {"loss/policy": losses.detach(), "kl/teacher": losses.detach()}
        return Loss(losses.mean(), outputs, metrics)

    def _divergence(self, log_p: Tensor, logits: Tensor) -> Tensor:
        """Divergence `[M]` of the student `log_p` `[M, V]` and its teacher's logits `[M, W]`."""
        # networks of one vocabulary may have other numbers of unused logits behind it
        fitted = pad(logits, (0, max(0, log_p.shape[-1] - logits.shape[-1])), value=IMPOSSIBLE)
        log_q = self.dynamics.log_probs(fitted[..., : log_p.shape[-1]])
        if self.divergence == "reverse":
            return exact_kl(log_p, log_q)
        value = (log_q.exp() * (log_q - log_p)).sum(-1).detach()
        # sum_v p_v dlog p_v is 0 but for rounding; with it the gradient is exactly 0 where p is q
        slope = ((log_p.exp() - log_q.exp()).detach() * log_p).sum(-1)
        return value + (slope - slope.detach())

    def _in_chunks(
        self, model: TextModel, teacher: TextModel, tokens: Tokens, states: Tensor
    ) -> Tensor:
        """The same where not all logits are held at once."""
        with torch.no_grad():
            taught, project = teacher.states_and_projection(tokens)

        def divergence(logits: Tensor, taught: Tensor) -> tuple[Tensor]:
            with torch.no_grad():
                others = project(taught)
            return (self._divergence(self.dynamics.log_probs(logits), others),)

        return model.measure_states(states, divergence, taught)[0]
