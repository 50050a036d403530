"""What an algorithm that follows a reward's gradient can't do is said at once."""

import pytest
import yaml

from rlfactory.config.options import options
from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError, Problem
from rlfactory.config.schema.signature import trait

WORDS = ("algo=draft", "model=tiny_sd3", "reward=jpeg_standin")
SUM = ("reward=combine", "reward.of=[jpeg_standin,shapes_learned]")


def problems(*words: str) -> list[Problem]:
    with pytest.raises(PlanError) as caught:
        plan_from_words(*WORDS, *words)
    return caught.value.problems


@pytest.mark.parametrize("algo", ["draft", "refl"])
@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["reward=compressibility"], "reward"),
        (["reward=shapes"], "reward"),
        ([*SUM, "reward.of=[jpeg_standin,shapes]"], "reward.parts.shapes"),
        ([*SUM, "reward.normalise=group"], "reward.normalise"),
        (["dynamics=dpm_solver"], "dynamics"),
        (["scoring.offload=true"], "scoring.offload"),
        (["scoring.background=process"], "scoring.background"),
        (["resample=2", "group_size=2"], "resample"),
    ],
)
def test_one_error_and_a_fix_that_works(algo: str, words: list[str], key: str) -> None:
    (problem,) = problems(f"algo={algo}", *words)
    assert problem.key == key
    if problem.fix:
        plan_from_words(*WORDS, f"algo={algo}", *words, problem.fix)


@pytest.mark.parametrize(
    "words",
    [
        [],
        SUM,
        [*SUM, "reward.of=[jpeg_standin,shapes]", "reward.weights.shapes=0"],
        ["reward=shapes_learned"],
        ["dynamics=flow_sde"],
        ["regularizer=kl_v"],
        ["model=tiny_sd"],
        ["memory=low", "scoring.offload=false"],
    ],
)
def test_what_fits(words: list[str]) -> None:
    plan_from_words(*WORDS, *words)


def test_videos_and_texts() -> None:
    assert [p.key for p in problems("model=wan", "model.path=zoo:tiny_sd3")][:1] == ["algo"]
    assert "algo" in [p.key for p in problems("model=tiny_gpt2", "reward=length")]


def test_the_message_names_all_rewards_that_have_a_gradient() -> None:
    nodes = {
        n: yaml.safe_load(p.read_text("utf-8"))["reward"] for n, p in options("reward").items()
    }
    having = {name for name, node in nodes.items() if trait(node, "differentiable")}
    (problem,) = problems("reward=shapes")
    for name in having - {"pickscore_rank"}:
        assert name in problem.message, name
