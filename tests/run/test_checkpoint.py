"""Weights on disk: whole or not at all, and back exactly."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from rlfactory.model.base import ImageModel
from rlfactory.model.weights import EMA
from rlfactory.run.checkpoint import checkpoint_bytes, load_checkpoint, newest, save_checkpoint


@pytest.fixture
def model(linear: Callable[..., ImageModel], monkeypatch: pytest.MonkeyPatch) -> ImageModel:
    made = linear(0.5, 0.25)
    made.weights.add(EMA)

    def export(folder: Path) -> None:
        bias = float(made.weights.parameters["bias"].detach())
        (folder / "exported").write_text(str(bias))

    monkeypatch.setattr(made, "export", export)
    return made


def test_every_weight_set_comes_back(
    model: ImageModel, linear: Callable[..., ImageModel], tmp_path: Path
) -> None:
    model.weights.parameters["bias"].data.fill_(2.0)
    save_checkpoint(tmp_path / "step_000003", model, EMA, {"updates": 5})
    state = json.loads((tmp_path / "step_000003" / "state.json").read_text())
    assert state == {"updates": 5}
    other = linear(0.0, 0.0)
    load_checkpoint(tmp_path / "step_000003", other)
    assert float(other.weights.parameters["bias"].detach()) == 2.0
    with other.weights(EMA):
        assert float(other.weights.parameters["bias"].detach()) == 0.25


def test_the_export_holds_the_set_that_was_named(model: ImageModel, tmp_path: Path) -> None:
    model.weights.parameters["bias"].data.fill_(2.0)
    save_checkpoint(tmp_path / "a", model, EMA, {})
    save_checkpoint(tmp_path / "b", model, "policy", {})
    assert [(tmp_path / n / "exported").read_text() for n in "ab"] == ["0.25", "2.0"]


def test_a_failure_leaves_no_half_checkpoint(
    model: ImageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(folder: Path) -> None:
        raise OSError("disk")

    monkeypatch.setattr(model, "export", broken)
    with pytest.raises(OSError, match="disk"):
        save_checkpoint(tmp_path / "step_000001", model, EMA, {})
    assert newest(tmp_path) is None


def test_the_newest_has_the_highest_number(tmp_path: Path) -> None:
    for number in (2, 10, 9):
        (tmp_path / f"step_{number:06d}").mkdir()
    assert newest(tmp_path) == tmp_path / "step_000010"


def test_the_size_is_known_beforehand(model: ImageModel, tmp_path: Path) -> None:
    values = torch.tensor([0.0]).element_size() * 2  # weight and bias
    assert checkpoint_bytes(model) == 3 * values  # policy, ema, and the export
