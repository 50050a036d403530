"""Writing a checkpoint: complete or not at all, and restored exactly."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from rlfactory.model.base import ImageModel
from rlfactory.model.weight_sets import EMA
from rlfactory.run.checkpoint.find import newest
from rlfactory.run.checkpoint.load import load_checkpoint, load_optimizer
from rlfactory.run.checkpoint.save import begin_checkpoint, checkpoint_bytes

Step = Callable[..., torch.optim.Optimizer]


def test_every_weight_set_comes_back(
    model: ImageModel, linear: Callable[..., ImageModel], tmp_path: Path
) -> None:
    model.weights.parameters["bias"].data.fill_(2.0)
    begin_checkpoint(tmp_path / "step_000003", model, EMA, {"updates": 5})()
    state = json.loads((tmp_path / "step_000003" / "state.json").read_text())
    assert state == {"updates": 5}
    other = linear(0.0, 0.0)
    load_checkpoint(tmp_path / "step_000003", other)
    assert float(other.weights.parameters["bias"].detach()) == 2.0
    with other.weights(EMA):
        assert float(other.weights.parameters["bias"].detach()) == 0.25


def test_the_export_holds_the_set_that_was_named(model: ImageModel, tmp_path: Path) -> None:
    model.weights.parameters["bias"].data.fill_(2.0)
    begin_checkpoint(tmp_path / "a", model, EMA, {})()
    begin_checkpoint(tmp_path / "b", model, "policy", {})()
    assert [(tmp_path / n / "exported").read_text() for n in "ab"] == ["0.25", "2.0"]


def test_a_failure_leaves_no_half_checkpoint(
    model: ImageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(folder: Path, values: object) -> None:
        raise OSError("disk")

    monkeypatch.setattr(model, "export", broken)
    with pytest.raises(OSError, match="disk"):
        begin_checkpoint(tmp_path / "step_000001", model, EMA, {})()
    assert newest(tmp_path) is None


def test_what_moves_after_the_beginning_is_not_saved(
    stepped: Step, model: ImageModel, linear: Callable[..., ImageModel], tmp_path: Path
) -> None:
    optimizer = stepped(model)
    before = [float(p.detach()) for p in model.weights.parameters.values()]
    finish = begin_checkpoint(tmp_path / "step_000001", model, EMA, {}, optimizer)
    stepped(model, optimizer)
    assert not list(tmp_path.iterdir()), "nothing is written in the foreground, the export neither"
    exported = float(model.weights.full_state_dict()["ema/bias"])
    finish()
    assert float((tmp_path / "step_000001" / "exported").read_text()) == exported
    other = linear(0.0, 0.0)
    load_checkpoint(tmp_path / "step_000001", other)
    assert [float(p.detach()) for p in other.weights.parameters.values()] == before
    restored = torch.optim.AdamW(other.weights.parameters.values())
    load_optimizer(tmp_path / "step_000001", restored)
    assert [float(s["step"]) for s in restored.state.values()] == [1.0, 1.0]


def test_the_size_is_known_beforehand(stepped: Step, model: ImageModel, tmp_path: Path) -> None:
    values = torch.tensor([0.0]).element_size() * 2  # weight and bias
    assert checkpoint_bytes(model) == 3 * values  # policy, ema, and the export
    optimizer = stepped(model)
    assert checkpoint_bytes(model, optimizer) == 6 * values  # two moments and a count of steps
