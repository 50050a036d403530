"""DDPO's alignment reward (Black et al. 2023): BERTScore of a VLM's description and the prompt."""

import logging
from typing import Literal

import torch
from torch import Tensor

from rlfactory.reward.backbones.bertscore import BertScore
from rlfactory.reward.base import Reward, Samples, require_images
from rlfactory.reward.client.http_client import RetryPolicy
from rlfactory.reward.client.openai_client import API_KEY_ENV, VisionChat, alone, fill_template
from rlfactory.utils.types import NonNegativeInt, Positive, PositiveInt

log = logging.getLogger(__name__)


class LlavaBertScore(Reward):
    """`llava_bertscore`: BERTScore recall of `reference` by a model's answer to `question`.

    The model is any vision-language model on an OpenAI-compatible server; DDPO used LLaVA, and the
    encoder below. `{prompt}` in `question` and `reference` is replaced by the prompt. NaN without
    an answer, or for an empty one. RewardError where server, model or encoder is not there.
    """

    media = "images"
    metadata = ()
    best_score = 1.0
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
        key_env: str = API_KEY_ENV,
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
        self.chat = VisionChat(
            url,
            model=model,
            key_env=key_env,
            image_size=image_size,
            max_tokens=max_tokens,
            concurrency=concurrency,
            policy=RetryPolicy(connect_timeout, timeout, retries, backoff),
        )
        self.bertscore = BertScore(encoder, device, layer=layer, dtype=dtype, batch_size=batch_size)

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]`, at most 1, in practice well above 0."""
        questions = [fill_template(self.question, prompt) for prompt in samples.prompts]
        answers = self.chat.answers(alone(require_images(samples)), questions)
        scores = torch.full((len(answers),), torch.nan)
        answered = {i: answer for i, answer in enumerate(answers) if answer and answer.strip()}
        if empty := sum(answer is not None for answer in answers) - len(answered):
            log.error("%d samples got an empty answer", empty)
        references = [fill_template(self.reference, samples.prompts[i]) for i in answered]
        scores[[*answered]] = self.bertscore.recall([*answered.values()], references)
        return {"llava_bertscore": scores}
