"""The arithmetic of a plan, and its folder."""

import re
from pathlib import Path

import pytest

from rlfactory.plan import make_plan
from rlfactory.problems import PlanError, mended
from rlfactory.request import compose_request, planned


@pytest.mark.parametrize(
    ("words", "items", "evaluations"),
    [
        (["algo=nft", "times.count=3"], 3, "10 of the network to sample a picture, 3 to compare"),
        (["algo=grpo", "window=all"], 9, "10 of the network to sample a picture, 9 to learn"),
        (
            ["algo=grpo", "window=all", "model.guidance=4.5"],
            9,
            "20 of the network to sample a picture, 18 to",
        ),
        # FLUX's guidance is an input: no second evaluation
        (["model=flux", "times.count=3"], 3, "6 of the network to sample a picture, 3 to compare"),
        (["algo=grpo", "window=fixed"], 3, "10 of the network to sample a picture, 3 to"),
        (["algo=grpo", "window=random_subset"], 2, "10 of the network"),
        (["algo=grpo", "window=exp_decay", "window.size=3"], 3, "10 of the network"),
        (
            ["algo=grpo", "window=all", "schedule.steps=4"],
            3,
            "4 of the network to sample a picture, 3 to",
        ),
    ],
)
def test_arithmetic(words: list[str], items: int, evaluations: str) -> None:
    budget = ["prompts_per_iteration=3", "group_size=4", "updates_per_iteration=2"]
    derived = planned(*words, *budget, "iterations=5", "micro_batch=7").derived
    assert derived["samples"] == "3 groups x 4 = 12 an iteration, 6 an update"
    assert derived["updates"] == "2 an iteration x 5 = 10"
    batches = -(-6 * items // 7)
    assert derived["micro-batches"] == f"{6 * items} items an update / 7 = {batches} accumulated"
    assert derived["evaluations"].startswith(evaluations)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["algo=nft"], {"schedule", "times"}),
        (["algo=grpo"], {"schedule", "window"}),
        (["model=tiny_gpt2"], set()),
    ],
)
def test_choices_that_mean_nothing_are_not_shown(words: list[str], shown: set[str]) -> None:
    assert planned(*words).choices.keys() & {"schedule", "window", "times"} == shown


def test_the_folder_says_what_it_holds() -> None:
    made = planned("algo=grpo", "seed=7").run_dir
    assert made.parent == Path("outputs")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_grpo-tiny_sd3-shapes-s7", made.name)
    assert planned("run_dir=there").run_dir == Path("there")


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
        planned("regularizer=kl_awm", word)
    assert [problem.key for problem in caught.value.problems] == [key]
    assert said in str(caught.value)


def test_components_in_lists_are_checked_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lists_of_mine.py").write_text("class Part:\n    def __init__(self, *, k): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    composed = compose_request(["trust=[lists_of_mine]"])
    part = {"_target_": "lists_of_mine.Part", "k": [1, {"inner": [{"_target_": "os.system"}]}]}
    with pytest.raises(PlanError) as caught:
        make_plan({**composed.values, "reward": part}, composed.choices)
    assert [problem.key for problem in caught.value.problems] == ["reward.k.1.inner.0._target_"]


def test_a_number_in_the_place_of_a_coefficient_is_mended() -> None:
    with pytest.raises(PlanError) as caught:
        planned("regularizer=kl_v", "regularizer.coefficient=0.001")
    words = ["check", "regularizer.coefficient=0.001"]
    (problem,) = caught.value.problems
    assert mended(problem, words) == "rlfactory check regularizer.coefficient.value=0.001"


def test_rules_look_at_each_term() -> None:
    term = f"{{_target_: rlfactory.regularizer.kl_x.KLMean, coefficient: {PRICE}}}"
    assert planned("algo=grpo", "regularizer=kl_awm", f"+regularizer.terms.steps={term}")
    with pytest.raises(PlanError, match=r"regularizer\.terms\.steps: .*keeps none"):
        planned("algo=nft", "regularizer=kl_awm", f"+regularizer.terms.steps={term}")


def test_memory_and_evaluations_are_foreseen() -> None:
    derived = planned("model=flux", "hardware.memory_gb=20", "algo=grpo").derived
    assert derived["evaluations"].endswith("; 1,152 an iteration")
    assert derived["peak memory"].startswith("about ")
    assert derived["peak memory"].endswith("; the device has 20")
    assert any(
        text.startswith("this needs about") for key, text in derived.items() if "note" in key
    )
    assert "peak memory" not in planned("model=tiny_gpt2").derived
    roomy = planned("model=flux", "hardware.memory_gb=800").derived
    assert not any("note" in key for key in roomy)
