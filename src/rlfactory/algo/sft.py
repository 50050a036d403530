"""Supervised fine-tuning: the likelihood of given completions."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from torch import Tensor

from rlfactory.algo.base import Algorithm, Loss
from rlfactory.algo.ops.completions import completion_items, given_completion, with_unit_advantages
from rlfactory.algo.ops.token_kl import entropy
from rlfactory.algo.ops.token_outputs import token_outputs
from rlfactory.batch import TokenBatch
from rlfactory.dynamics.token import Token, TokenStep
from rlfactory.model.text_base import TextModel
from rlfactory.prompts.base import Prompt, PromptError
from rlfactory.prompts.ops.chat import ChatText
from rlfactory.rollout import Rollout
from rlfactory.utils.types import Faults, PositiveInt

PLAIN = Token()
"""At temperature 1 and not truncated: a model of the data, however it is sampled later."""


class SFT(Algorithm[TextModel, TokenBatch, TokenBatch]):
    """With `y` a completion of the data, an end of text included,

        loss = -mean log p(y_t | prompt, y_<t),

    the mean over tokens. The samples of an iteration are rows of the data, evaluations compute
    the loss of held-out rows, and draw from the policy only where a reward is chosen.

    Args:
        column: The column of the prompts' data that holds the completion, a text or a list of one
            assistant's message; null: there is none, and the prompts are whole texts.
        train_on: Whose tokens are learned: those of the `completion`; of its `answer` alone, what
            follows the token that completes its first `</think>`; or those of the whole `text`,
            prompt included.
        length: The most tokens of a completion, which is cut there and then has no end; null: as
            many as fit into the model's context.
    """

    requires = "tokens"
    samples_from: ClassVar[Literal["policy", "data"]] = "data"
    columns: ClassVar[tuple[str, ...]] = ("column",)
    uses_critic = False
    data_scores: ClassVar[Mapping[str, tuple[str, str]]] = {
        "loss": ("loss/policy", "lower"),
        "token_accuracy": ("policy/accuracy", "higher"),
    }

    def __init__(
        self,
        *,
        column: str | None = "completion",
        train_on: Literal["completion", "answer", "text"] = "completion",
        length: PositiveInt | None = None,
    ) -> None:
        self.column, self.length = column, length
        self.train_on = train_on
        self.learns_whole_texts = column is None or train_on == "text"
        self.learns_answers_alone = train_on == "answer"

    @staticmethod
    def validate(options: Mapping[str, Any], run: Mapping[str, Any]) -> Faults:
        """An answer is that of a completion."""
        if options["train_on"] == "answer" and options["column"] is None:
            yield "train_on", "is answer, and whole texts have none", "algo.column=completion"

    def completion(self, prompt: Prompt, member: int) -> tuple[str, str]:
        """The text that is given, and the one that is learned; each member of a group is equal."""
        if self.learns_whole_texts and isinstance(prompt.text, ChatText):
            raise PromptError(
                f"the prompt {prompt.text[:60]!r} is a list of messages, and of a conversation the"
                " last answer is learned; type algo.train_on=completion algo.column=completion"
            )
        if self.column is None:
            return "", prompt.text
        text = given_completion(prompt, self.column, "column")
        return ("", prompt.text + text) if self.train_on == "text" else (prompt.text, text)

    def compute_advantages(self, rollout: Rollout, main: str) -> Rollout:
        """An advantage of 1 for each token: the loss is that of a policy gradient on the data."""
        return with_unit_advantages(rollout)

    def training_items(self, rollout: Rollout, model: TextModel, **_: int) -> TokenBatch:
        return completion_items(rollout, model, TokenBatch)

    def loss(self, model: TextModel, batch: TokenBatch) -> Loss:
        tokens = batch.tokens
        outputs, (entropies, hits) = token_outputs(model, PLAIN, tokens, _entropy, _hits)
        losses = -tokens.real(batch.advantage) * outputs.log_prob
        metrics = {
            "loss/policy": losses.detach(),
            "policy/entropy": entropies,
            "policy/accuracy": hits,
        }
        if self.samples_from == "data":
            metrics["data/cut"] = (~tokens.ended).float()
        return Loss(losses.mean(), outputs, metrics)


def _entropy(step: TokenStep) -> Tensor:
    return entropy(step.log_probs.detach())


def _hits(step: TokenStep) -> Tensor:
    """1 where the likeliest token is that of the data."""
    return (step.log_probs.argmax(-1) == step.next).float()
