"""Loading a checkpoint, and starting from the weights of another run."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from rlfactory.model.base import ImageModel
from rlfactory.model.weight_sets import EMA, OLD, REFERENCE, WeightSets
from rlfactory.run.checkpoint.checksums import write_manifest
from rlfactory.run.checkpoint.find import WEIGHTS_FILE, checkpoint_of
from rlfactory.run.checkpoint.load import (
    load_checkpoint,
    load_initial_weights,
    load_optimizer,
    load_state,
)
from rlfactory.run.checkpoint.save import save_checkpoint
from rlfactory.run.folder import RunFolder, RunFolderError

Step = Callable[..., torch.optim.Optimizer]


def saved(run: Path, model: Any, step: int = 3) -> Path:
    from safetensors.torch import save_file

    place = checkpoint_of(RunFolder(run).checkpoints, step)
    place.mkdir(parents=True)
    save_file({k: v.clone() for k, v in model.weights.state_dict().items()}, place / WEIGHTS_FILE)
    write_manifest(place, {})
    return place


def test_policy_and_what_follows_it_begin_there_and_the_reference_does_not(
    linear: Callable[..., Any], tmp_path: Path
) -> None:
    trained, fresh = linear(2.0, 3.0), linear(0.3, -0.1)
    trained.weights.add(EMA)
    trained.weights._sets[EMA][0].fill_(9.0)
    saved(tmp_path, trained)
    for name in (EMA, OLD, REFERENCE):
        fresh.weights.add(name)
    load_initial_weights(tmp_path, fresh)
    for name, expected in (("policy", 2.0), (EMA, 2.0), (OLD, 2.0), (REFERENCE, 0.3)):
        with fresh.weights(name):
            assert fresh.weight.item() == pytest.approx(expected), name
    assert fresh.bias.item() == 3.0


def test_a_critic_comes_along(linear: Callable[..., Any], tmp_path: Path) -> None:
    def model(value: float) -> Any:
        made = linear(value)
        made.head = nn.Parameter(torch.full((2,), value))
        made.weights = WeightSets({"weight": made.weight}, critic={"head": made.head})
        return made

    saved(tmp_path, model(4.0))
    fresh = model(0.0)
    load_initial_weights(tmp_path, fresh)
    assert fresh.head.tolist() == [4.0, 4.0]


def test_the_newest_sound_checkpoint_is_taken(linear: Callable[..., Any], tmp_path: Path) -> None:
    saved(tmp_path, linear(1.0), step=1)
    damaged = saved(tmp_path, linear(2.0), step=2)
    (damaged / WEIGHTS_FILE).write_bytes(b"")
    fresh = linear(0.0)
    load_initial_weights(tmp_path, fresh)
    assert fresh.weight.item() == 1.0
    assert damaged.is_dir(), "another run's folder is not touched"


def test_without_a_checkpoint(linear: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(
        RunFolderError, match=f"begin_from: {tmp_path} holds no undamaged checkpoint"
    ):
        load_initial_weights(tmp_path, linear())


def test_other_shapes_are_named_before_anything_moves(
    linear: Callable[..., Any], tmp_path: Path
) -> None:
    other = linear(5.0)
    other.weight = nn.Parameter(torch.zeros(3))
    other.weights = WeightSets({"bias": other.bias, "weight": other.weight})
    saved(tmp_path, other)
    fresh = linear(0.3)
    with pytest.raises(RunFolderError, match="weight is 3 there and one number here"):
        load_initial_weights(tmp_path, fresh)
    assert fresh.weight.item() == pytest.approx(0.3)


def values(model: ImageModel) -> torch.Tensor:
    return torch.stack([p.detach() for p in model.weights.parameters.values()])


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
    stepped: Step,
    linear: Callable[..., ImageModel],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: Any,
    options: dict[str, Any],
) -> None:
    model, other = linear(), linear(9.0, 9.0)
    monkeypatch.setattr(model, "export", lambda folder, values: None)
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
    stepped: Step, model: ImageModel, linear: Callable[..., ImageModel], tmp_path: Path
) -> None:
    optimizer = stepped(model)
    optimizer.param_groups[0]["peak_lr"] = 0.1
    save_checkpoint(tmp_path / "a", model, EMA, {}, optimizer)
    again = torch.optim.AdamW(linear().weights.parameters.values(), lr=0.7)
    load_optimizer(tmp_path / "a", again, keep_options=True)
    assert again.param_groups[0]["lr"] == 0.7
    assert "peak_lr" not in again.param_groups[0]
    assert len(again.state) == 2


def test_the_state_comes_back_as_it_was(stepped: Step, model: ImageModel, tmp_path: Path) -> None:
    state = {"score": -math.inf, "prompts": {"$": [0.1]}, "step": None}
    save_checkpoint(tmp_path / "a", model, EMA, state, stepped(model))
    assert load_state(tmp_path / "a") == state
