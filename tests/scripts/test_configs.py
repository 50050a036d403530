"""The generator of invalid commands: they are invalid, differ by seed, and cover every rule."""

import importlib
import random
import sys
from pathlib import Path

import pytest

from rlfactory.config.checks.rules import RULES
from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError

SCRIPTS = str(Path(__file__).parents[2] / "scripts")
sys.path.insert(0, SCRIPTS)
configs = importlib.import_module("faulty.configs")
crossings = importlib.import_module("faulty.bad.crossings")
known = importlib.import_module("faulty.bad.known")
values = importlib.import_module("faulty.bad.values")
sys.path.remove(SCRIPTS)


@pytest.mark.slow
def test_the_seed_makes_the_cases() -> None:
    def told(seed: int) -> list[str]:
        return [str(case) for case in configs.make_cases(6, seed)]

    assert told(1) == told(1)
    assert len({*told(1)} & {*told(2)}) < 3


def test_every_rule_of_the_plan_is_broken() -> None:
    broken = {name for name in crossings.BREAKS if name.startswith("require_")}
    own = {"require_valid_options"}  # the others of BREAKS, which stand beside components
    assert broken | crossings.ELSEWHERE | own == {rule.__name__ for rule in RULES}


@pytest.mark.slow
def test_a_broken_rule_is_named_by_its_key() -> None:
    for case in crossings.every_rule(random.Random(0)):
        words = [word for word in case.words if word != "check"]
        with pytest.raises(PlanError) as refused:
            plan_from_words(*words)
        assert any(name in p.key for p in refused.value.problems for name in case.names), case


def test_every_value_has_a_type_or_a_comment() -> None:
    found = known.leaves(("model=tiny_sd3", "algo=grpo"))
    assert len(found) > 100
    assert {leaf.key for leaf in found} >= {"seed", "ema.decay", "optimizer.lr", "algo.clip_range"}
    assert [leaf.comment for leaf in found if leaf.key == "ema.ramp"][0].startswith("> 0")


@pytest.mark.parametrize(
    ("comment", "numbers"),
    [
        ("[0, 1); of the rest", ["1", "-1", "2"]),
        ("(0, 1]; share", ["0", "-1", "2"]),
        ("> 0: of the ratio", ["0", "-5"]),
        (">= 1: words", ["0", "-4"]),
        ("0 or more", ["-1"]),
        ("JPEG quality, 1 to 100", ["101", "0"]),
        ("0 to below 1: share", []),
        ("pixels", []),
    ],
)
def test_comments_promise_bounds(comment: str, numbers: list[str]) -> None:
    assert values._beyond_comment(comment) == numbers


@pytest.mark.slow
def test_refusals_through_the_console() -> None:
    tally = configs.run(3, seed=3)
    assert tally.attempted == 3
    assert all("took" in fault for fault in tally.failures), tally.show()  # a slow machine's
    assert "seconds of computing" in tally.notes


def test_what_is_accepted_or_says_nothing_is_told(tmp_path: Path) -> None:
    case = configs.Case("sound, so not refused", ("list", "algo"), ("algo",))
    told = configs.faults_of(case, configs.ask(case, tmp_path))
    assert told[0] == "exit code 0"
    assert any("names none of" in fault for fault in told)
