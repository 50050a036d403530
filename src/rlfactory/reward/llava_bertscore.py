"""Does a model that looks at the picture say what the prompt said? DDPO's alignment reward."""

import logging
from typing import Literal

import torch
from torch import Tensor

from rlfactory.reward.base import Reward, Samples, pictures
from rlfactory.reward.bertscore import BertScore
from rlfactory.reward.chat import KEY, Chat, filled
from rlfactory.reward.http import Patience
from rlfactory.types import NonNegativeInt, Positive, PositiveInt

log = logging.getLogger(__name__)


class LlavaBertScore(Reward):
    """`llava_bertscore`: the BERTScore recall of `reference` by a model's answer to `question`.

    DDPO's were LLaVA and the encoder below; any model that answers about pictures serves. Samples
    with no answer, or an empty one, are NaN.
    """

    media = "images"
    metadata = ()
    good = 1.0
    main = "llava_bertscore"

    def __init__(
        self,
        device: torch.device,
        *,
        url: str,
        model: str,
        question: str = "Answer concisely: what is going on in this image?",
        reference: str = "The image contains {prompt}",
        encoder: str = "microsoft/deberta-xlarge-mnli",
        layer: PositiveInt = 40,
        dtype: Literal["float32", "float16"] = "float32",
        batch_size: PositiveInt = 64,
        key_env: str = KEY,
        image_size: PositiveInt | None = None,
        max_tokens: PositiveInt = 64,
        concurrency: PositiveInt = 16,
        connect_timeout: Positive = 5.0,
        timeout: Positive = 120.0,
        retries: NonNegativeInt = 5,
        backoff: Positive = 0.5,
    ) -> None:
        self.question = question
        self.reference = reference
        self.chat = Chat(
            url,
            model=model,
            key_env=key_env,
            image_size=image_size,
            max_tokens=max_tokens,
            concurrency=concurrency,
            patience=Patience(connect_timeout, timeout, retries, backoff),
        )
        self.bertscore = BertScore(encoder, device, layer=layer, dtype=dtype, batch_size=batch_size)

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]`, at most 1; in practice well above 0."""
        questions = [filled(self.question, prompt) for prompt in samples.prompts]
        answers = self.chat.answers(pictures(samples), questions)
        scores = torch.full((len(answers),), torch.nan)
        said = {i: answer for i, answer in enumerate(answers) if answer and answer.strip()}
        if empty := sum(answer is not None for answer in answers) - len(said):
            log.error("%d samples got an empty answer", empty)
        references = [filled(self.reference, samples.prompts[i]) for i in said]
        scores[[*said]] = self.bertscore.recall([*said.values()], references)
        return {"llava_bertscore": scores}
