"""Problems and the commands that mend them."""

import pytest

from rlfactory.config.problems import (
    MISSPELT,
    PlanError,
    Problem,
    closest,
    fix_command,
    fixed_words,
    override_key,
    report,
    unknown_key,
    unknown_name,
)


@pytest.mark.parametrize(
    ("problem", "typed", "command"),
    [
        (Problem("a", "", "a=2"), ["check", "a=1", "b=3"], "rlfactory check a=2 b=3"),
        (Problem("a", "", "a=2"), ["check"], "rlfactory check a=2"),
        (Problem("a", "", "a=2"), ["a=1", "+a=3"], "rlfactory a=2"),
        (Problem("a.x", "", "trust=[a]"), ["a.x=1"], "rlfactory a.x=1 'trust=[a]'"),
        (Problem("a.bta", "", "a.beta"), ["+a.bta=1=2"], "rlfactory a.beta=1=2"),
        (Problem("a.bta", "", "a.beta"), ["b=1"], ""),
        (Problem("a", ""), ["a=1"], ""),
        (Problem("a", "", "rlfactory list a"), ["a=1"], "rlfactory list a"),
        (Problem("a", "", instead=("b=2", "c=3")), ["check", "a=1"], "rlfactory check b=2 c=3"),
        (Problem("a", "", instead=("b=2",)), ["a=1", "+a=3", "d=4"], "rlfactory b=2 d=4"),
        (Problem("a", "", instead=()), ["check", "a=1"], "rlfactory check"),
    ],
)
def test_the_command_that_mends(problem: Problem, typed: list[str], command: str) -> None:
    assert fix_command(problem, typed) == command


def test_report_has_a_line_for_each_problem_and_remedy() -> None:
    shown = report([Problem("a", "is 1", "a=2"), Problem("b", "is 3")], ["a=1", "b=3"])
    assert shown.splitlines() == ["error: a: is 1", "    instead: a=2", "error: b: is 3"]
    shown = report([Problem("a", "is 1", "a=2")], ["a=1", "b=3"])
    assert shown.splitlines() == ["error: a: is 1", "    try: rlfactory a=2 b=3"]


@pytest.mark.parametrize(
    ("word", "meant"), [("lenght", "length"), ("gpro", "grpo"), ("gsro", None), ("sd14", None)]
)
def test_swapped_letters_are_a_misspelling(word: str, meant: str | None) -> None:
    assert closest(word, ["length", "grpo", "gspo", "sd15"], MISSPELT) == meant


def test_overrides_that_become_others_are_replaced() -> None:
    problem = Problem("a", "", instead=("x.a=1", "y=2"))
    assert fixed_words(problem, ["a=1", "b=1", "y=2", "a=3"]) == ["x.a=1", "b=1", "y=2"]
    assert fixed_words(Problem("a", "", instead=()), ["a=1", "b=1"]) == ["b=1"]


def test_a_key_of_another_meaning_is_no_misspelling() -> None:
    for key in ("num_generations", "max_steps", "num_epochs", "prompt_file", "eval_steps"):
        assert unknown_key(key, ["iterations", "max_minutes", "epochs", "eval_rewards"]).fix == ""


def test_unknown_keys() -> None:
    problem = unknown_key("optimzer.lr", ["optimizer", "seed"], "optimzer")
    assert problem.fix == "optimizer.lr"
    assert "Did you mean optimizer.lr?" in problem.message
    assert unknown_key("algo.xyz", ["beta", "_target_"]).message.endswith("known here: beta")
    assert unknown_key("xyz", []).fix == ""


def test_words() -> None:
    assert closest("shpes", ["shapes", "jpeg"]) == "shapes"
    assert closest("qqq", ["shapes", "jpeg"]) is None
    assert [override_key(w) for w in ("a.b=1", "+a=1", "++a=1", "~a", "a@b=c", "=1")] == [
        "a.b", "a", "a", "a", "a", ""
    ]  # fmt: skip
    assert str(PlanError([Problem("a", "x"), Problem("b", "y")])) == "a: x\nb: y"


def test_the_text_of_the_error_has_the_overrides_that_mend() -> None:
    problems = [Problem("a", "is 1", "a=2"), Problem("b", "is 3", "rlfactory list b")]
    assert str(PlanError(problems)) == "a: is 1 (try 'a=2')\nb: is 3"


def test_the_only_name_is_what_was_meant() -> None:
    assert unknown_name("size", "size", "full", ["tiny"]).fix == "size=tiny"
    assert not unknown_name("size", "size", "full", ["tiny", "small"]).fix
