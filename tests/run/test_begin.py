"""Beginning with what another run learned."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from rlfactory.model.weights import EMA, OLD, REFERENCE, Weights
from rlfactory.run.begin import begin_with
from rlfactory.run.checkpoint import WEIGHTS_FILE, checkpoint_of
from rlfactory.run.folder import RunFolder, RunFolderError
from rlfactory.run.manifest import write_manifest


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
    begin_with(tmp_path, fresh)
    for name, expected in (("policy", 2.0), (EMA, 2.0), (OLD, 2.0), (REFERENCE, 0.3)):
        with fresh.weights(name):
            assert fresh.weight.item() == pytest.approx(expected), name
    assert fresh.bias.item() == 3.0


def test_a_critic_comes_along(linear: Callable[..., Any], tmp_path: Path) -> None:
    def model(value: float) -> Any:
        made = linear(value)
        made.head = nn.Parameter(torch.full((2,), value))
        made.weights = Weights({"weight": made.weight}, critic={"head": made.head})
        return made

    saved(tmp_path, model(4.0))
    fresh = model(0.0)
    begin_with(tmp_path, fresh)
    assert fresh.head.tolist() == [4.0, 4.0]


def test_the_newest_sound_checkpoint_is_taken(linear: Callable[..., Any], tmp_path: Path) -> None:
    saved(tmp_path, linear(1.0), step=1)
    damaged = saved(tmp_path, linear(2.0), step=2)
    (damaged / WEIGHTS_FILE).write_bytes(b"")
    fresh = linear(0.0)
    begin_with(tmp_path, fresh)
    assert fresh.weight.item() == 1.0
    assert damaged.is_dir(), "another run's folder is not touched"


def test_without_a_checkpoint(linear: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=f"begin_from: {tmp_path} holds no sound checkpoint"):
        begin_with(tmp_path, linear())


def test_other_shapes_are_named_before_anything_moves(
    linear: Callable[..., Any], tmp_path: Path
) -> None:
    other = linear(5.0)
    other.weight = nn.Parameter(torch.zeros(3))
    other.weights = Weights({"bias": other.bias, "weight": other.weight})
    saved(tmp_path, other)
    fresh = linear(0.3)
    with pytest.raises(RunFolderError, match="weight is 3 there and one number here"):
        begin_with(tmp_path, fresh)
    assert fresh.weight.item() == pytest.approx(0.3)
