"""DDPO's alignment reward (Black et al. 2023): BERTScore of a VLM's description and the prompt."""

import logging
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import AutoModel

from rlfactory.reward.backbones.pretrained import load_with_tokenizer
from rlfactory.reward.base import RewardError, Samples, require_images
from rlfactory.reward.client.openai_client import PROMPT_FIELD, AskingReward
from rlfactory.utils.types import PositiveInt

log = logging.getLogger(__name__)


class LlavaBertScore(AskingReward):
    """`llava_bertscore`: BERTScore recall of `reference` by a model's answer to `question`.

    The model is any vision-language model on an OpenAI-compatible server; DDPO used LLaVA, and the
    encoder below. `{prompt}` in `question` and `reference` is replaced by the prompt. NaN without
    an answer, or for an empty one.
    """

    main = "llava_bertscore"

    def __init__(
        self,
        device: torch.device,
        *,
        question: str = "Answer concisely: what is going on in this image?",
        reference: str = "The image contains {prompt}",
        encoder: str = "microsoft/deberta-xlarge-mnli",
        layer: PositiveInt = 40,
        dtype: Literal["float32", "float16"] = "float32",
        batch_size: PositiveInt = 64,
        max_tokens: PositiveInt = 64,
        **options: Any,
    ) -> None:
        """
        Args:
            model: The model's name on the server: a LLaVA, or any other vision-language model.
            question: What is asked about each image; {prompt} is replaced.
            reference: The text that the answer is compared with; {prompt} is replaced.
            encoder: BERTScore's: a hub id or a folder.
            layer: Whose output is used: 40 for deberta-xlarge-mnli, 17 for roberta-large, 18 for
                bert-large-uncased.
            dtype: float32 | float16, of the encoder.
            batch_size: Texts in one forward pass.
        """
        super().__init__(**options)
        self.question, self.max_tokens = question, max_tokens
        self.reference = reference
        self.bertscore = BertScore(encoder, device, layer=layer, dtype=dtype, batch_size=batch_size)

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]`, at most 1, in practice well above 0."""
        questions = [self.question.replace(PROMPT_FIELD, prompt) for prompt in samples.prompts]
        images = [[image] for image in require_images(samples)]
        answers = self.answers(images, questions, self.max_tokens)
        scores = torch.full((len(answers),), torch.nan)
        answered = {i: answer for i, answer in enumerate(answers) if answer and answer.strip()}
        if empty := sum(answer is not None for answer in answers) - len(answered):
            log.error("%d samples got an empty answer", empty)
        references = [self.reference.replace(PROMPT_FIELD, samples.prompts[i]) for i in answered]
        scores[[*answered]] = self.bertscore.recall([*answered.values()], references)
        return {"llava_bertscore": scores}


def recall(reference: Tensor, counted: Tensor, candidate: Tensor, real: Tensor) -> Tensor:
    """Recall `[B]` float32 of references by candidates, of embeddings `[B, R, D]` and `[B, C, D]`.
    `counted` `[B, R]` marks the reference's tokens without padding and special ones, `real`
    `[B, C]` the candidate's without padding. NaN where no token of a reference is counted.
    """
    # float32: in half precision a cosine would have three digits
    x, y = (torch.nn.functional.normalize(e.float(), dim=-1) for e in (reference, candidate))
    cosine = (x @ y.transpose(1, 2)).masked_fill(~real[:, None], -torch.inf)
    best = cosine.amax(2).masked_fill(~counted, 0.0)
    return best.sum(1) / counted.sum(1)


class BertScore:
    """BERTScore recall by an encoder of transformers.

    `path` is a hub id or a folder; embeddings are those after layer `layer`, counted from 1.
    RewardError where it can't be loaded or has fewer layers.
    """

    def __init__(
        self,
        path: str,
        device: torch.device,
        *,
        layer: int,
        dtype: Literal["float32", "float16"],
        batch_size: int,
    ) -> None:
        self.device = device
        self.layer = layer
        self.batch_size = batch_size
        # the pooler serves classification alone, and published encoders may lack it
        self.model, self.tokenizer = load_with_tokenizer(
            AutoModel,
            path,
            getattr(torch, dtype),
            what="a text encoder",
            key="reward.encoder",
            without="pooler",
        )
        self.model.to(device)
        depth = self.model.config.num_hidden_layers
        if layer > depth:
            raise RewardError(f"reward.layer={layer}: {path} has {depth} layers")
        positions = getattr(self.model.config, "max_position_embeddings", 0) or 512
        self.max_tokens = min(self.tokenizer.model_max_length, positions)

    @torch.inference_mode()
    def recall(self, candidates: Sequence[str], references: Sequence[str]) -> Tensor:
        """The recall of each reference by its candidate, `[B]` float32 on the CPU."""
        parts = [torch.empty(0)]
        for start in range(0, len(references), self.batch_size):
            rows = slice(start, start + self.batch_size)
            reference, _, counted = self._embed(references[rows])
            candidate, real, _ = self._embed(candidates[rows])
            parts.append(recall(reference, counted, candidate, real).cpu())
        return torch.cat(parts)

    def _embed(self, texts: Sequence[str]) -> tuple[Tensor, Tensor, Tensor]:
        """Embeddings `[B, T, D]`, the mask of real tokens, and that without special tokens."""
        inputs = self.tokenizer(
            [text.strip() for text in texts],
            padding=True,
            truncation=True,
            max_length=self.max_tokens,
            return_tensors="pt",
            return_special_tokens_mask=True,
        ).to(self.device)
        special = inputs.pop("special_tokens_mask").bool()
        real = inputs["attention_mask"].bool()
        states = self.model(**inputs, output_hidden_states=True).hidden_states
        return states[self.layer], real, real & ~special
