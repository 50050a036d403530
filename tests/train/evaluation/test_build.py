"""The evaluator of an experiment: its prompts, noises and prompt sets."""

from typing import Any

from rlfactory.config.overrides import plan_from_words
from rlfactory.train.build import build
from rlfactory.train.components import NoProgress
from rlfactory.train.evaluation.build import build_evaluator
from rlfactory.train.evaluation.evaluator import evaluation_metrics


def config(*words: str) -> dict[str, Any]:
    return dict(plan_from_words("hardware=cpu", *words).config)


def test_an_evaluation_has_its_noises_and_its_own_seed() -> None:
    few = ("evaluation.prompts=6", "seed=3")
    made = config(*few)
    one = build_evaluator(made, build(made), NoProgress())
    assert (one.seed, one.noises, len(one.prompts)) == (3, 1, 6)
    made = config(*few, "evaluation.noises=2", "evaluation.seed=7")
    two = build_evaluator(made, build(made), NoProgress())
    assert (two.seed, two.noises, two.prompts) == (7, 2, one.prompts * 2)


def test_texts_are_evaluated_on_several_prompt_sets() -> None:
    words = ["model=tiny_gpt2", "reward=length", "evaluation.prompts=2", "dynamics.length=4"]
    sets = ["eval_sets.of=[movies,randomwalks]", "eval_sets.rewards.movies=[length]"]
    planned = config(*words, *sets)
    evaluator = build_evaluator(planned, build(planned), NoProgress())
    metrics = evaluation_metrics(evaluator("policy"))
    assert len(evaluator.sets["randomwalks"].prompts) == 2
    for name in ("movies", "randomwalks"):
        assert {f"eval/{name}/length/mean", f"eval/{name}/text/repetition"} <= metrics.keys()
