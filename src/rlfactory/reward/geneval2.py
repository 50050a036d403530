"""GenEval 2's Soft-TIFA (arXiv 2512.16853): how likely a VLM answers each question rightly."""

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from rlfactory.prompts.base import Prompt
from rlfactory.prompts.geneval2 import NUMBERS
from rlfactory.reward.base import RewardError, Samples, require_images
from rlfactory.reward.client.openai_client import AskingReward
from rlfactory.utils.types import PositiveInt

log = logging.getLogger(__name__)

QUESTION = "{question} Answer in one word."
DIGITS = {word: str(number) for number, word in enumerate(NUMBERS, start=1)}


def probability(tokens: Mapping[str, float], answer: str) -> float:
    """The sum of the probabilities of the tokens that say an answer.

    As published: the answer with and without a capital and a space before it, a number in digits
    too.
    """
    words = {answer, answer.lower(), answer.capitalize(), DIGITS.get(answer.lower(), answer)}
    said = {space + word for word in words for space in ("", " ")}
    return min(sum(p for token, p in tokens.items() if token in said), 1.0)


def combined(scores: Sequence[float], mean: Literal["geometric", "arithmetic"]) -> float:
    """The mean of an image's atoms; the geometric one is 0 if any is."""
    if mean == "arithmetic":
        return math.fsum(scores) / len(scores)
    return math.prod(scores) ** (1 / len(scores))


class GenEval2(AskingReward):
    """`geneval2`: the mean of the probabilities of the right answers, in [0, 1]: the benchmark's
    Soft-TIFA GM or AM, as `mean` says; `geneval2_atoms`: the arithmetic one.

    Each question of a prompt's `vqa_list` is a request, of one token and the log-probabilities of
    the `top` most likely ones, to an OpenAI-compatible server. NaN without an answer to each.
    """

    metadata = ("vqa_list",)
    main = "geneval2"
    better = {"geneval2_atoms": "higher"}

    def __init__(
        self,
        *,
        mean: Literal["geometric", "arithmetic"] = "geometric",
        top: PositiveInt = 20,
        **options: Any,
    ) -> None:
        """
        Args:
            url: A server with OpenAI's protocol and log-probabilities: http://HOST:PORT/v1.
            model: The model's name on the server; published: Qwen/Qwen3-VL-8B-Instruct.
            mean: geometric | arithmetic: of a prompt's atoms, the benchmark's GM or AM.
            top: The most likely tokens whose log-probabilities are asked for.
            concurrency: Simultaneous requests, a question each.
        """
        self.mean: Literal["geometric", "arithmetic"] = mean
        self.top = top
        super().__init__(**options)

    def check_prompts(self, prompts: Iterable[Prompt]) -> None:
        """RewardError that names the first prompt without questions."""
        for prompt in prompts:
            if problem := questions_problem(prompt.metadata):
                raise RewardError(
                    f"reward=geneval2 can't score the prompt {prompt.text!r}: {problem};"
                    " prompts=geneval2 fits, and so does the benchmark's own geneval2_data.jsonl"
                    " (prompts=file prompts.path=FILE)"
                )

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]` in [0, 1]."""
        images = require_images(samples)
        asked = [
            (row, question, answer)
            for row, metadata in enumerate(samples.metadata)
            for question, answer in _questions(metadata)
        ]
        rows = [row for row, *_ in asked]
        questions = [QUESTION.replace("{question}", question) for _, question, _ in asked]
        found = self.first_tokens([images[row] for row in rows], questions, self.top)
        atoms: list[list[float]] = [[] for _ in samples.metadata]
        for (row, _, answer), tokens in zip(asked, found, strict=True):
            atoms[row].append(math.nan if tokens is None else probability(tokens, answer))
        by_mean = {
            mean: torch.tensor([combined(one, mean) if one else math.nan for one in atoms])
            for mean in (self.mean, "arithmetic")
        }
        return {"geneval2": by_mean[self.mean], "geneval2_atoms": by_mean["arithmetic"]}


def questions_problem(metadata: Mapping[str, Any]) -> str | None:
    """The reason why there are no questions in metadata; None if there are."""
    listed = metadata.get("vqa_list")
    if not isinstance(listed, Sequence) or isinstance(listed, str) or not listed:
        return f"vqa_list={listed!r} is no list of questions"
    for pair in listed:
        pairs = isinstance(pair, Sequence) and not isinstance(pair, str) and len(pair) == 2
        if not pairs or not all(isinstance(text, str) and text.strip() for text in pair):
            return f"{pair!r} of vqa_list is no pair of a question and its answer"
    return None


def _questions(metadata: Mapping[str, Any]) -> list[tuple[str, str]]:
    if problem := questions_problem(metadata):
        log.error("reward geneval2: %s", problem)
        return []
    return [(question, answer.strip()) for question, answer in metadata["vqa_list"]]
