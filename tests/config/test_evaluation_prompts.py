"""What a plan says of evaluation prompts."""

from pathlib import Path

import pytest

from rlfactory.config.evaluation_prompts import takes_all
from rlfactory.config.overrides import override_frozen, plan_composed, plan_from_words
from rlfactory.config.plan import Plan
from rlfactory.config.problems import PlanError


def prompts_of(plan: Plan) -> str:
    """What a plan says of the prompts, before the samples that are drawn."""
    prompts, _, draws = plan.derived["evaluated on"].rpartition("; ")
    assert "samples an evaluation" in draws
    return prompts


def row(*words: str) -> str:
    return prompts_of(plan_from_words("model=tiny_gpt2", *words))


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "p.txt").write_text("\n".join(f"prompt {i}" for i in range(50)))
    (tmp_path / "few.txt").write_text("a\nb\n\na\n")
    return str(tmp_path / "p.txt")


def test_sources_that_hold_prompts_out() -> None:
    assert row("prompts.held_out_share=0.25") == "256 held-out prompts"
    plan = plan_from_words("prompts=shapes", "evaluation.prompts=8")
    assert prompts_of(plan) == "8 held-out prompts"


def test_sources_that_hold_none_out() -> None:
    assert row() == "256 training prompts; prompts.held_out_share=0.1 holds some out"
    assert row("prompts.starts=[one]") == "256 training prompts"  # a share would leave none
    with pytest.raises(PlanError, match="leaves none of 1 prompts"):
        row("prompts.starts=[one]", "prompts.held_out_share=0.1")
    plan = plan_from_words("prompts=animals", "reward=compressibility")
    assert prompts_of(plan) == "256 training prompts"


def test_a_file_holds_a_tenth_out_by_default(file: str) -> None:
    words = ["prompts=file", f"prompts.path={file}", "evaluation.prompts=5"]
    assert row(*words) == "5 held-out prompts"
    assert row(*words, "prompts.held_out_share=0").startswith("5 training prompts; prompts.held")


def test_a_file_of_few_prompts_says_why_none_is_held_out(file: str, tmp_path: Path) -> None:
    words = ["prompts=file", f"prompts.path={tmp_path / 'few.txt'}", "evaluation.prompts=2"]
    assert "2 training prompts (0.1 of 2 is fewer than 4, so none is held out)" in row(*words)
    all_of_them = "2 held-out prompts, of 50: evaluation.prompts=50 takes all"
    assert row(*words, f"prompts.eval_path={file}") == all_of_them


def test_an_evaluation_of_more_prompts_than_there_are_says_so(file: str) -> None:
    words = ["prompts=file", f"prompts.path={file}"]
    too_many = "evaluation.prompts=256 is more than there are"
    assert row(*words) == f"5 held-out prompts; {too_many}"
    all_of_them = row(*words, "prompts.held_out_share=0")
    assert all_of_them.startswith("50 training prompts")
    assert all_of_them.endswith(too_many)


def test_an_evaluation_takes_all_that_is_typed(file: str, tmp_path: Path) -> None:
    (tmp_path / "test.txt").write_text("a\nb\nprompt 1\n")
    words = ["model=tiny_gpt2", "prompts=file", f"prompts.path={file}"]
    plan = plan_from_words(*words)
    frozen = {**plan.config, "choices": plan.choices}

    def typed(*words: str) -> list[str]:
        return takes_all(words, frozen, override_frozen(frozen, words).values)

    test = f"prompts.path={tmp_path / 'test.txt'}"
    found = plan_composed(override_frozen(frozen, typed(test)))
    assert found.config["prompts"]["path"] == file, "so that it is known what is trained on"
    expected = "3 prompts; 1 of the 3 are trained on too"
    assert prompts_of(found) == expected
    other = plan_composed(override_frozen(frozen, typed("prompts=file", test)))
    assert other.config["prompts"]["held_out_share"] == 0
    assert other.config["evaluation"]["prompts"] == 3
    assert typed("evaluation.prompts=4") == ["evaluation.prompts=4"]
    assert "evaluation.prompts=50" not in typed(test, "evaluation.prompts=2")
    assert (
        plan_composed(override_frozen(frozen, typed(test, "evaluation.prompts=2")))
        .derived["evaluated on"]
        .startswith("2 prompts")
    )


def test_a_set_of_a_file_is_taken_wholly(file: str) -> None:
    words = ["eval_sets.of=[file]", f"eval_sets.parts.file.path={file}"]
    plan = plan_from_words("model=tiny_gpt2", *words)
    assert plan.config["eval_sets"]["parts"]["file"]["held_out_share"] == 0
    assert plan.derived["also on"].startswith("50 of file")
