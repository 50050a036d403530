"""Problems and the commands that mend them."""

import pytest

from rlfactory.problems import PlanError, Problem, closest, key_of, mended, report, unknown_key


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
    ],
)
def test_the_command_that_mends(problem: Problem, typed: list[str], command: str) -> None:
    assert mended(problem, typed) == command


def test_report_has_a_line_for_each_problem_and_remedy() -> None:
    shown = report([Problem("a", "is 1", "a=2"), Problem("b", "is 3")], ["a=1", "b=3"])
    assert shown.splitlines() == ["error: a: is 1", "    try: rlfactory a=2 b=3", "error: b: is 3"]


def test_unknown_keys() -> None:
    problem = unknown_key("optimzer.lr", ["optimizer", "seed"], "optimzer")
    assert problem.remedy == "optimizer.lr"
    assert "Did you mean optimizer.lr?" in problem.message
    assert unknown_key("algo.xyz", ["beta", "_target_"]).message.endswith("known here: beta")
    assert unknown_key("xyz", []).remedy == ""


def test_words() -> None:
    assert closest("shpes", ["shapes", "jpeg"]) == "shapes"
    assert closest("qqq", ["shapes", "jpeg"]) is None
    assert [key_of(w) for w in ("a.b=1", "+a=1", "++a=1", "~a", "a@b=c", "=1")] == [
        "a.b", "a", "a", "a", "a", ""
    ]  # fmt: skip
    assert str(PlanError([Problem("a", "x"), Problem("b", "y")])) == "a: x\nb: y"
