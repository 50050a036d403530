"""What a file of a component leaves out: the defaults of its signature, in its order."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from rlfactory.config._hydra import read_yaml
from rlfactory.config.overrides import compose, plan_from_words
from rlfactory.config.problems import PlanError
from rlfactory.config.schema.targets import with_defaults

GUARD = "rlfactory.algo.grpo_guard.GRPOGuard"
OPTIONS = ["clip_range", "per_time", "old_log_probs", "bias"]


def test_defaults_lie_beneath_in_the_order_of_the_signature() -> None:
    content = {"algo": {"_target_": GUARD, "old_log_probs": "sampled", "own": 1}, "epochs": 2}
    filled = with_defaults(content, "algo")
    assert sorted(filled["algo"]) == sorted(["_target_", *OPTIONS, "own"])
    assert [*filled["algo"]][0] == "_target_"
    assert [*filled["algo"]][-1] == "own"
    assert filled["algo"]["old_log_probs"] == "sampled"
    assert filled["epochs"] == 2
    assert content["algo"] == {"_target_": GUARD, "old_log_probs": "sampled", "own": 1}


def test_a_file_without_a_package_is_the_component() -> None:
    assert set(with_defaults({"_target_": GUARD}, "algo")) == {"_target_", *OPTIONS}


@pytest.mark.parametrize(
    ("content", "group"),
    [
        ({"algo": {"_target_": GUARD}}, "experiment"),
        ({"defaults": ["grpo_guard"], "algo": {"_target_": GUARD}}, "algo"),
        ({"defaults": ["/algo/grpo_guard"], "algo": {"_target_": GUARD}}, "algo"),
        ({"defaults": [{"/algo": "grpo_guard"}], "algo": {"_target_": GUARD}}, "algo"),
        ({"algo": {"_target_": "nowhere.Class"}}, "algo"),
        ({"algo": {"_target_": 3}}, "algo"),
        ({"algo": {"beta": 1}}, "algo"),
        ({"algo": None}, "algo"),
        ({"optimizer": {"_target_": "torch.optim.AdamW"}}, "optimizer"),
        ({}, "algo"),
    ],
    ids=str,
)
def test_what_stays_as_it_is(content: dict[str, object], group: str) -> None:
    assert with_defaults(content, group) == content


def test_companions_are_no_file_beneath() -> None:
    content = {"defaults": ["_self_", {"override /dynamics": "ode"}], "algo": {"_target_": GUARD}}
    assert set(with_defaults(content, "algo")["algo"]) == {"_target_", *OPTIONS}


def test_a_default_is_plain_and_not_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kept_apart.py").write_text(
        "class Mine:\n    def __init__(self, *, a=(1, 2), b={'c': [3]}): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    content = {"reward": {"_target_": "kept_apart.Mine"}}
    first, second = (with_defaults(content, "reward")["reward"] for _ in range(2))
    assert first == second == {"_target_": "kept_apart.Mine", "a": [1, 2], "b": {"c": [3]}}
    first["b"]["c"].append(4)
    assert second["b"] == {"c": [3]}


def write(folder: Path, text: str) -> str:
    (folder / "conf" / "algo").mkdir(parents=True)
    (folder / "conf" / "algo" / "mine.yaml").write_text(text)
    return f"hydra.searchpath=[file://{folder}/conf]"


def test_a_users_option_has_every_key_without_plus(tmp_path: Path) -> None:
    place = write(tmp_path, f"# @package _global_\nalgo:\n  _target_: {GUARD}\n")
    made = plan_from_words(place, "algo=mine", "dynamics=flow_sde", "algo.bias=batch")
    assert made.config["algo"]["bias"] == "batch"
    assert set(made.config["algo"]) == {"_target_", *OPTIONS}


def test_a_file_that_builds_on_another_keeps_that_ones_values(tmp_path: Path) -> None:
    text = f"# @package _global_\ndefaults: [grpo_guard, _self_]\nalgo:\n  _target_: {GUARD}\n"
    composed = compose([write(tmp_path, text), "algo=mine"])
    assert composed.values["algo"] == compose(["algo=grpo_guard"]).values["algo"]


def test_a_key_that_the_class_lacks_is_still_refused() -> None:
    with pytest.raises(PlanError) as refused:
        plan_from_words("algo=grpo", "algo.no_such=1")
    assert [problem.key for problem in refused.value.problems] == ["algo.no_such"]


def test_files_are_read_as_they_are_composed(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    OmegaConf.save({"algo": {"_target_": GUARD}}, path)
    assert set(read_yaml(path, "algo")["algo"]) == {"_target_", *OPTIONS}
    assert read_yaml(path) == {"algo": {"_target_": GUARD}}
