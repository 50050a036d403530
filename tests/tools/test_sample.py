"""The configuration that a run is sampled with."""

import errno
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError
from rlfactory.rollout import GeneratedSamples
from rlfactory.run.disk_errors import DiskError
from rlfactory.run.folder import RunFolderError
from rlfactory.tools import sample as module
from rlfactory.tools.sample import SamplingOptions, sampling_config, with_temperature


@pytest.fixture(scope="module")
def image() -> dict[str, Any]:
    return yaml.safe_load(
        plan_from_words("model=tiny_sd3", "eval_rewards.of=[compressibility]").frozen()
    )


@pytest.fixture(scope="module")
def text() -> dict[str, Any]:
    return yaml.safe_load(plan_from_words("model=tiny_gpt2").frozen())


def test_prompts_and_rewards_of_the_run_are_left_out(image: dict[str, Any]) -> None:
    config = sampling_config(image, ["a", "b"], SamplingOptions())
    assert config["prompts"]["texts"] == ["a", "b"]
    assert config["reward"]["_target_"].endswith("NoReward")
    assert config["eval_rewards"]["parts"] == {}
    assert config["model"] == image["model"]
    assert config["evaluation"] == {**image["evaluation"], "prompts": 1}


def test_options_replace_those_of_evaluations(image: dict[str, Any]) -> None:
    config = sampling_config(image, ["a"], SamplingOptions(steps=3, size=96, guidance=2.0))
    assert (config["evaluation"]["steps"], config["evaluation"]["size"]) == (3, 96)
    assert config["model"]["guidance"] == 2.0
    flux = {**image, "model": {**image["model"], "embedded_guidance": 3.5}}
    model = sampling_config(flux, ["a"], SamplingOptions(guidance=2.0))["model"]
    assert model["embedded_guidance"] == 2.0
    assert model["guidance"] == image["model"]["guidance"]


def test_a_temperature_of_zero_takes_the_most_likely_token(text: dict[str, Any]) -> None:
    config = sampling_config(text, ["a"], SamplingOptions(temperature=0.0))
    assert config["dynamics"]["top_k"] == 1
    assert config["dynamics"]["temperature"] == 1.0
    assert with_temperature(text["dynamics"], 0.7)["temperature"] == 0.7


def test_options_of_the_other_kind_of_model_are_refused(
    image: dict[str, Any], text: dict[str, Any]
) -> None:
    with pytest.raises(PlanError, match="--temperature: is no option of a run that makes images"):
        sampling_config(image, ["a"], SamplingOptions(temperature=1.0))
    with pytest.raises(PlanError, match="--steps: is no option of a run that makes texts"):
        sampling_config(text, ["a"], SamplingOptions(steps=4))


def test_a_place_that_cannot_be_written_is_told_before_samples_are_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(module, "located_config", lambda *_: {})
    monkeypatch.setattr(module, "sampling_config", lambda *_: {})
    monkeypatch.setattr(module, "restored_run", lambda *_: nullcontext((None, None)))
    out = tmp_path / "file" / "new"
    with pytest.raises(RunFolderError, match="can't be written .*type --out FOLDER"):
        module.sample(tmp_path, ["a"], 1, 0, out, "policy", False, SamplingOptions())


def test_a_full_disk_is_told_with_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    parts = SimpleNamespace(model=None)
    monkeypatch.setattr(module, "located_config", lambda *_: {})
    monkeypatch.setattr(module, "sampling_config", lambda *_: {})
    monkeypatch.setattr(module, "restored_run", lambda *_: nullcontext((parts, None)))
    monkeypatch.setattr(module, "draw_samples", lambda *_: GeneratedSamples())
    monkeypatch.setattr(module, "_write_texts", full)
    with pytest.raises(DiskError, match=r"new could not be written: No space .*; make room"):
        module.sample(tmp_path, ["a"], 1, 0, tmp_path / "new", "policy", False, SamplingOptions())
