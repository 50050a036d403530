"""Rules that stand beside a component, and which keys a rule may read."""

from pathlib import Path

import pytest

from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError

ADVANTAGE = """
import no_such_package_at_all
from rlfactory.algo.advantage.group import GroupAdvantage


class Odd(GroupAdvantage):
    @staticmethod
    def validate(options, run):
        import math
        if math.isfinite(options["eps"]) and run["group_size"] % 2 == 0:
            yield "eps", f"is {options['eps']}, and groups are even", "group_size=3"
            yield "group_size", "is even", "group_size=3"
"""
WORDS = ("algo=grpo", "advantage._target_=odd_advantage.Odd", "trust=[odd_advantage]")


def test_a_component_of_another_folder_checks_its_own_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "odd_advantage.py").write_text(ADVANTAGE)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PlanError) as refused:
        plan_from_words(*WORDS, "group_size=4")
    found = {problem.key: problem.message for problem in refused.value.problems}
    assert found == {"advantage.eps": "is 0.0001, and groups are even", "group_size": "is even"}
    assert plan_from_words(*WORDS, "group_size=3", "prompts_per_iteration=4")


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        (
            ("group_size=x", "algo=grpo", "window=all", "window.skip_last=99"),
            ["group_size", "window.skip_last"],
        ),
        (
            ("schedule.steps=x", "algo=grpo", "window=all", "window.skip_last=99"),
            ["schedule.steps"],
        ),
        (
            ("algo=grpo", "algo.clip_range=x", "optimizer.lr=-1"),
            ["algo.clip_range", "optimizer.lr"],
        ),
    ],
)
def test_faults_are_reported_at_once_and_none_follows_from_another(
    words: tuple[str, ...], keys: list[str]
) -> None:
    with pytest.raises(PlanError) as refused:
        plan_from_words(*words)
    assert sorted(problem.key for problem in refused.value.problems) == keys
