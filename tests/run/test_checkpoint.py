"""Weights on disk: whole or not at all, and back exactly."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rlfactory.model.base import ImageModel
from rlfactory.model.weights import EMA
from rlfactory.run.checkpoint import (
    begin_checkpoint,
    checkpoint_bytes,
    checkpoint_of,
    load_checkpoint,
    load_optimizer,
    load_state,
    newest,
    put_aside,
    save_checkpoint,
    sweep,
)


@pytest.fixture
def model(linear: Callable[..., ImageModel], monkeypatch: pytest.MonkeyPatch) -> ImageModel:
    made = linear(0.5, 0.25)
    made.weights.add(EMA)

    def export(folder: Path) -> None:
        bias = float(made.weights.parameters["bias"].detach())
        (folder / "exported").write_text(str(bias))

    monkeypatch.setattr(made, "export", export)
    return made


def stepped(
    model: ImageModel, optimizer: torch.optim.Optimizer | None = None
) -> torch.optim.Optimizer:
    parameters = list(model.weights.parameters.values())
    optimizer = optimizer or torch.optim.AdamW(parameters, lr=0.1)
    for i, parameter in enumerate(parameters):
        parameter.grad = parameter.detach() + i
    optimizer.step()
    return optimizer


def values(model: ImageModel) -> torch.Tensor:
    return torch.stack([p.detach() for p in model.weights.parameters.values()])


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


def test_the_newest_has_the_highest_number(model: ImageModel, tmp_path: Path) -> None:
    for number in (2, 1000010, 9):
        save_checkpoint(checkpoint_of(tmp_path, number), model, EMA, {})
    assert newest(tmp_path) == tmp_path / "step_1000010"


def test_a_damaged_one_is_named_and_put_aside_and_the_one_before_is_used(
    model: ImageModel, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number in (1, 2, 3):
        save_checkpoint(checkpoint_of(tmp_path, number), model, EMA, {})
    (tmp_path / "step_000003" / "state.json").write_text("{}")
    (tmp_path / "step_000002" / "MANIFEST.json").unlink()
    assert newest(tmp_path) == tmp_path / "step_000001"
    assert (tmp_path / "step_000003").is_dir(), "whoever only reads moves nothing"
    told: list[str] = []
    assert newest(tmp_path, told.append) == tmp_path / "step_000001"
    assert "step_000003 is damaged: state.json has 2 bytes instead of 3" in told[0]
    assert "kept as damaged_step_000002" in told[1]
    assert {p.name for p in tmp_path.iterdir()} == {
        "step_000001",
        "damaged_step_000002",
        "damaged_step_000003",
    }
    assert "state.json" in caplog.text


def test_what_was_damaged_before_is_not_overwritten(tmp_path: Path) -> None:
    for expected in ("damaged_step_000001", "damaged_step_000001_1"):
        (tmp_path / "step_000001").mkdir()
        assert put_aside(tmp_path / "step_000001").name == expected


def test_what_was_never_finished_is_swept_away(model: ImageModel, tmp_path: Path) -> None:
    begin_checkpoint(tmp_path / "step_000001", model, EMA, {})
    assert [p.name for p in tmp_path.iterdir()] == [".step_000001"]
    assert newest(tmp_path) is None
    sweep(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_moves_after_the_beginning_is_not_saved(
    model: ImageModel, linear: Callable[..., ImageModel], tmp_path: Path
) -> None:
    optimizer = stepped(model)
    before = [float(p.detach()) for p in model.weights.parameters.values()]
    finish = begin_checkpoint(tmp_path / "step_000001", model, EMA, {}, optimizer)
    stepped(model, optimizer)
    finish()
    other = linear(0.0, 0.0)
    load_checkpoint(tmp_path / "step_000001", other)
    assert [float(p.detach()) for p in other.weights.parameters.values()] == before
    restored = torch.optim.AdamW(other.weights.parameters.values())
    load_optimizer(tmp_path / "step_000001", restored)
    assert [float(s["step"]) for s in restored.state.values()] == [1.0, 1.0]


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.AdamW, {"amsgrad": True}),
        (torch.optim.Adam, {"betas": (0.5, 0.75)}),
        (torch.optim.SGD, {"momentum": 0.9}),
        (torch.optim.RMSprop, {"centered": True}),
        (torch.optim.Adagrad, {}),
        (torch.optim.Rprop, {}),
    ],
)
def test_an_optimiser_goes_on_as_if_nothing_had_been(
    linear: Callable[..., ImageModel],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: Any,
    options: dict[str, Any],
) -> None:
    model, other = linear(), linear(9.0, 9.0)
    monkeypatch.setattr(model, "export", lambda folder: None)
    optimizer = kind(model.weights.parameters.values(), lr=0.1, **options)
    for _ in range(3):
        stepped(model, optimizer)
    save_checkpoint(tmp_path / "a", model, "policy", {}, optimizer)
    load_checkpoint(tmp_path / "a", other)
    again = kind(other.weights.parameters.values(), lr=0.7)
    load_optimizer(tmp_path / "a", again)
    for _ in range(3):
        stepped(model, optimizer)
        stepped(other, again)
    assert torch.equal(values(model), values(other))
    assert again.param_groups[0]["lr"] == 0.1


def test_options_that_were_changed_may_be_kept(
    model: ImageModel, linear: Callable[..., ImageModel], tmp_path: Path
) -> None:
    optimizer = stepped(model)
    optimizer.param_groups[0]["peak_lr"] = 0.1
    save_checkpoint(tmp_path / "a", model, EMA, {}, optimizer)
    again = torch.optim.AdamW(linear().weights.parameters.values(), lr=0.7)
    load_optimizer(tmp_path / "a", again, keep_options=True)
    assert again.param_groups[0]["lr"] == 0.7
    assert "peak_lr" not in again.param_groups[0]
    assert len(again.state) == 2


def test_the_state_comes_back_as_it_was(model: ImageModel, tmp_path: Path) -> None:
    state = {"score": -math.inf, "prompts": {"$": [0.1]}, "step": None}
    save_checkpoint(tmp_path / "a", model, EMA, state, stepped(model))
    assert load_state(tmp_path / "a") == state


def test_the_size_is_known_beforehand(model: ImageModel, tmp_path: Path) -> None:
    values = torch.tensor([0.0]).element_size() * 2  # weight and bias
    assert checkpoint_bytes(model) == 3 * values  # policy, ema, and the export
    optimizer = stepped(model)
    assert checkpoint_bytes(model, optimizer) == 6 * values  # two moments and a count of steps
