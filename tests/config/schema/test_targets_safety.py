"""A configuration comes from anyone: a YAML file alone must not be able to call what it likes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from rlfactory.config.problems import PlanError
from rlfactory.config.schema.signature import TargetError
from rlfactory.config.schema.targets import instantiate, is_allowed, locate

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "target",
    [
        "rlfactory.config.schema.targets.instantiate",  # would call its _target_
        "rlfactory.config.schema.targets.locate",
        "rlfactory.cli.app.Path",
        "rlfactory.train.process.worker.run_main_process",
        "torch.load",
        "torch.optimizer_of_mine.Adam",
        "os.system",
        "rlfactory",
        "",
    ],
)
def test_only_packages_of_components_may_be_named(target: str) -> None:
    assert not is_allowed(target)


def test_trust_does_not_open_the_rest_of_our_own_package() -> None:
    assert not is_allowed("rlfactory.config.schema.targets.instantiate", ["rlfactory"])
    assert is_allowed("rlfactory.algo.nft.NFT", ["rlfactory"])


def test_a_trusted_package_is_one_whole_name() -> None:
    assert is_allowed("mine.Reward", ["mine"])
    assert not is_allowed("mineral.Reward", ["mine"])
    assert not is_allowed("os.system", ["mine"])


@pytest.mark.parametrize(
    "target",
    [
        "torch.optim.swa_utils.deepcopy",  # a function, imported there
        "torch.optim.swa_utils.Module",  # a class, imported there
        "rlfactory.run.loggers.base.Path",
        "rlfactory.dynamics.schedule.shifted",  # a function of ours is no component
    ],
)
def test_what_a_module_merely_imports_is_no_component(target: str) -> None:
    assert is_allowed(target)
    with pytest.raises(TargetError, match="reward._target_.*no component"):
        locate(target, "reward")


def test_components_and_trusted_functions_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine_offers.py").write_text("def double(*, k):\n    return 2 * k\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert instantiate({"_target_": "mine_offers.double", "k": 4}, "reward") == 8
    assert locate("torch.optim.AdamW", "optimizer").__name__ == "AdamW"
    schedule = {"_target_": "rlfactory.dynamics.schedule.Schedule", "kind": "uniform"}
    assert instantiate({**schedule, "steps": 4, "shift": None}, "schedule") is not None


def test_values_that_a_target_does_not_take_are_told_without_a_traceback() -> None:
    node = {"_target_": "torch.optim.AdamW", "betas": [0.9]}  # of a config.yaml that was edited
    with pytest.raises(PlanError, match="optimizer: torch.optim.AdamW does not take.*IndexError"):
        instantiate(node, "optimizer", params=[nn.Parameter(torch.ones(1))])


@pytest.mark.slow
def test_a_folder_of_options_cannot_call_what_it_likes(tmp_path: Path) -> None:
    (tmp_path / "conf" / "reward").mkdir(parents=True)
    (tmp_path / "conf" / "reward" / "innocent.yaml").write_text(
        "# @package _global_\n# Looks harmless\n"
        "reward:\n  _target_: rlfactory.config.schema.targets.instantiate\n"
        "  node: {_target_: pathlib.Path.touch, self: called}\n  key: x\n"
    )
    words = ["check", "-cd", "conf", "reward=innocent"]
    answer = subprocess.run(
        [sys.executable, "-m", "rlfactory.cli", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert answer.returncode == 2
    assert "rlfactory.config.schema.targets.instantiate" in answer.stderr
    assert "Traceback" not in answer.stderr
    assert not (tmp_path / "called").exists()
