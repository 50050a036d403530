"""Further prompt sets of evaluations: what is planned, and what is refused."""

import pytest

from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError

SETS = "eval_sets.of=[geneval,signs]"


def test_a_plan_says_what_each_set_costs() -> None:
    words = [SETS, "eval_sets.rewards.geneval=[compressibility]", "eval_sets.counts.geneval=12"]
    plan = plan_from_words(*words, "eval_sets.rewards.signs=[compressibility]")
    assert plan.derived["also on"] == (
        "12 of geneval by compressibility; 256 of signs by compressibility: 524 samples in all"
    )
    assert [*plan.config["eval_rewards"]["parts"]] == ["compressibility"]
    assert plan.config["eval_rewards"]["of"] == []


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["eval_sets.of=[genevall]"], "eval_sets.of"),
        (["eval_sets.of=[signs,signs]"], "eval_sets.of"),
        ([SETS, "eval_sets.rewards.signs=[nosuch]"], "eval_sets.rewards.signs"),
        ([SETS, "eval_sets.rewards.movies=[jpeg]"], "eval_sets.rewards.movies"),
        ([SETS, "eval_sets.counts.signs=0"], "eval_sets.counts"),
        (["eval_sets.of=[signs]", "eval_sets.rewards.signs=[]"], "eval_sets.rewards.signs"),
    ],
)
def test_what_a_set_lacks_is_refused(words: list[str], key: str) -> None:
    with pytest.raises(PlanError) as refused:
        plan_from_words(*words)
    assert key in {problem.key for problem in refused.value.problems}, refused.value


def test_a_misspelt_reward_of_a_set_is_corrected_where_it_is_named() -> None:
    with pytest.raises(PlanError) as refused:
        plan_from_words("eval_sets.of=[shapes]", "eval_sets.rewards.shapes=[shapes,compresibility]")
    (problem,) = refused.value.problems
    assert problem.fix == "eval_sets.rewards.shapes=[shapes,compressibility]"
