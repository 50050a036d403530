"""Problems of keys and values by themselves."""

from pathlib import Path

import pytest

from rlfactory.config.overrides import compose, plan_from_words
from rlfactory.config.plan import make_plan
from rlfactory.config.problems import PlanError, fix_command

PRICE = "{_target_: rlfactory.regularizer.coefficient.Fixed, value: 0.5}"


@pytest.mark.parametrize(
    ("word", "key", "said"),
    [
        ("regularizer.terms.old.reference=lod", "regularizer.terms.old.reference", "allowed is"),
        ("+regularizer.terms.old.beta=1.0", "regularizer.terms.old.beta", "no such key"),
        ("regularizer.terms.old._target_=os.system", "regularizer.terms.old._target_", "outside"),
        (
            "regularizer.terms.old.coefficient.value=-1",
            "regularizer.terms.old.coefficient.value",
            ">= 0",
        ),
        ("+regularizer.terms.more={reference: old}", "regularizer.terms", "each a mapping with a"),
        ("regularizer.terms.old.coefficient=0.1", "regularizer.terms.old.coefficient", "_target_"),
        ("regularizer.terms=3", "regularizer.terms", "a mapping"),
        (f"+regularizer.price={PRICE}", "regularizer.price", "no such key"),
    ],
)
def test_what_is_wrong_inside_a_sum_is_found(word: str, key: str, said: str) -> None:
    with pytest.raises(PlanError) as caught:
        plan_from_words("regularizer=kl_awm", word)
    assert [problem.key for problem in caught.value.problems] == [key]
    assert said in str(caught.value)


def test_components_in_lists_are_checked_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lists_of_mine.py").write_text("class Part:\n    def __init__(self, *, k): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    composed = compose(["trust=[lists_of_mine]"])
    part = {"_target_": "lists_of_mine.Part", "k": [1, {"inner": [{"_target_": "os.system"}]}]}
    with pytest.raises(PlanError) as caught:
        make_plan({**composed.values, "reward": part}, composed.choices)
    assert [problem.key for problem in caught.value.problems] == ["reward.k.1.inner.0._target_"]


def test_a_number_in_the_place_of_a_coefficient_is_mended() -> None:
    with pytest.raises(PlanError) as caught:
        plan_from_words("regularizer=kl_v", "regularizer.coefficient=0.001")
    words = ["check", "regularizer.coefficient=0.001"]
    (problem,) = caught.value.problems
    assert fix_command(problem, words) == "rlfactory check regularizer.coefficient.value=0.001"


@pytest.mark.parametrize("model", ["tiny_sd", "tiny_gpt2"])
@pytest.mark.parametrize(
    ("group", "keys"),
    [
        ("schedule", ["steps"]),
        ("precision", ["weights", "rollout", "learning"]),
        ("memory", ["gradient_checkpointing", "offload_weights", "vae_slicing", "attention"]),
        ("model", ["path", "finetune"]),
        *((group, []) for group in ("window", "times", "reward", "engine", "logger")),
    ],
)
def test_an_own_component_must_take_what_the_plan_reads(
    model: str, group: str, keys: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "takes_nothing.py").write_text("class Own:\n    def __init__(self): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    composed = compose([f"model={model}", "trust=[takes_nothing]"])
    config = {**composed.values, group: {"_target_": "takes_nothing.Own"}}
    try:
        make_plan(config, composed.choices)
        found = []
    except PlanError as error:
        found = [p.key for p in error.problems if p.key.startswith(f"{group}.")]
    assert found == [f"{group}.{key}" for key in keys]


def test_own_dynamics_of_texts_have_a_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no_length.py").write_text(
        "class Own:\n    process = 'tokens'\n    def __init__(self): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    composed = compose(["model=tiny_gpt2", "trust=[no_length]"])
    with pytest.raises(PlanError, match=r"dynamics\.length: is missing"):
        make_plan({**composed.values, "dynamics": {"_target_": "no_length.Own"}}, composed.choices)


def test_a_key_that_the_plan_reads_must_have_a_value() -> None:
    with pytest.raises(PlanError) as caught:
        plan_from_words("~schedule.steps")
    (problem,) = caught.value.problems
    assert (problem.key, problem.fix) == ("schedule.steps", "")
    assert "is missing; type +schedule.steps=VALUE" in problem.message


@pytest.mark.parametrize(("word", "fix"), [("run_dir=1", '"1"'), ("run_dir=true", '"true"')])
def test_a_text_that_reads_as_a_number_is_quoted(word: str, fix: str) -> None:
    with pytest.raises(PlanError) as refused:
        plan_from_words(word)
    (problem,) = refused.value.problems
    assert problem.fix == f"run_dir={fix}"
    assert str(plan_from_words(problem.fix).run_dir) == fix.strip('"')


def test_an_option_in_the_place_of_a_component_is_told_where_files_choose() -> None:
    composed = compose([])
    with pytest.raises(PlanError, match="algo: has no _target_.* override /algo: grpo"):
        make_plan({**composed.values, "algo": "grpo"}, composed.choices)
    with pytest.raises(PlanError, match="algo: has no _target_") as caught:
        make_plan({**composed.values, "algo": None}, composed.choices)
    assert "override" not in str(caught.value)
