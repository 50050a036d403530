"""The same prompts from the same noise, whenever and however batched."""

from collections.abc import Callable

import pytest
import torch

from rlfactory.dynamics.schedule import uniform_sigmas
from rlfactory.model.base import ImageModel
from rlfactory.model.weights import EMA
from rlfactory.prompts.shapes import ShapesPrompts
from rlfactory.reward.jpeg import Compressibility
from rlfactory.run.evaluation import Evaluator, evaluation_metrics
from rlfactory.worker import Silent


@pytest.fixture
def evaluator(linear: Callable[..., ImageModel]) -> Callable[..., Evaluator]:
    def make(sample_batch: int = 100, seed: int = 0) -> Evaluator:
        model = linear()
        model.weights.add(EMA)
        return Evaluator(
            model=model,
            reward=Compressibility(),
            prompts=ShapesPrompts().held_out(24),
            sigmas=uniform_sigmas(4, 3.0),
            seed=seed,
            sample_batch=sample_batch,
            watcher=Silent(),
        )

    return make


def test_batching_does_not_matter_and_the_seed_does(evaluator: Callable[..., Evaluator]) -> None:
    one, other = evaluator()("policy"), evaluator(sample_batch=7)("policy")
    torch.testing.assert_close(one.images, other.images)
    assert one.scores.diversity == pytest.approx(other.scores.diversity)
    assert not torch.equal(one.images, evaluator(seed=1)("policy").images)


def test_the_weight_set_that_is_named_is_judged(evaluator: Callable[..., Evaluator]) -> None:
    made = evaluator()
    before = made("policy").images
    made.model.weights.parameters["bias"].data.add_(1.0)
    torch.testing.assert_close(made(EMA).images, before)
    assert not torch.equal(made("policy").images, before)


def test_a_preview_is_the_beginning_of_an_evaluation(evaluator: Callable[..., Evaluator]) -> None:
    made = evaluator()
    torch.testing.assert_close(made.preview(EMA, 5), made(EMA).images[:5])


def test_metrics_by_score_and_category(evaluator: Callable[..., Evaluator]) -> None:
    scores = evaluator()("policy").scores
    metrics = evaluation_metrics(scores)
    categories = set(scores.categories or [])
    for name, values in scores.values.items():
        assert metrics[f"eval/{name}/mean"] == pytest.approx(values.mean())
        found = {key.split("/")[2] for key in metrics if key.startswith(f"eval/{name}/")}
        assert found == {"mean"} | categories
    assert metrics["eval/diversity"] > 0
