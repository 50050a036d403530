"""Loading a checkpoint, and starting from the weights of another run."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from rlfactory.model.base import ImageModel
from rlfactory.model.weight_sets import EMA, OLD, REFERENCE, WeightSets
from rlfactory.run.checkpoint.checksums import write_manifest
from rlfactory.run.checkpoint.find import OPTIMIZER_FILE, STATE_FILE, WEIGHTS_FILE, checkpoint_of
from rlfactory.run.checkpoint.load import (
    load_checkpoint,
    load_initial_weights,
    load_optimizer,
    load_state,
)
from rlfactory.run.checkpoint.save import begin_checkpoint
from rlfactory.run.folder import RunFolder, RunFolderError

Step = Callable[..., torch.optim.Optimizer]


def saved(run: Path, model: Any, step: int = 3) -> Path:
    place = checkpoint_of(RunFolder(run).checkpoints, step)
    place.mkdir(parents=True)
    save_file({k: v.clone() for k, v in model.weights.state_dict().items()}, place / WEIGHTS_FILE)
    write_manifest(place, {})
    return place


@pytest.mark.parametrize("start", [True, False])
def test_policy_and_what_follows_it_begin_there_and_the_reference_as_it_is_asked_for(
    linear: Callable[..., Any], tmp_path: Path, start: bool
) -> None:
    trained, fresh = linear(2.0, 3.0), linear(0.3, -0.1)
    trained.weights.add(EMA)
    trained.weights._sets[EMA][0].fill_(9.0)
    saved(tmp_path, trained)
    for name in (EMA, OLD, REFERENCE):
        fresh.weights.add(name)
    load_initial_weights(tmp_path, fresh, "start" if start else "base")
    reference = (REFERENCE, 2.0 if start else 0.3)
    for name, expected in (("policy", 2.0), (EMA, 2.0), (OLD, 2.0), reference):
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


def test_adapters_of_peft_are_the_policy_and_a_critic_stays(tmp_path: Path) -> None:
    shapes = {"lora_A": (2, 3), "lora_B": (4, 2)}
    adapters = {k: nn.Parameter(torch.zeros(shape)) for k, shape in shapes.items()}
    named = {f"h.0.{kind}.default.weight": adapter for kind, adapter in adapters.items()}
    head = nn.Parameter(torch.full((2,), 4.0))
    model: Any = SimpleNamespace(weights=WeightSets(named, critic={"head": head}))
    values = {f"base_model.model.h.0.{k}.weight": torch.ones(shape) for k, shape in shapes.items()}
    save_file(values, tmp_path / "adapter_model.safetensors")
    load_initial_weights(tmp_path, model)
    assert all(bool((adapter == 1).all()) for adapter in adapters.values())
    assert head.tolist() == [4.0, 4.0]


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
    begin_checkpoint(tmp_path / "a", model, "policy", {}, optimizer)()
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
    begin_checkpoint(tmp_path / "a", model, EMA, {}, optimizer)()
    again = torch.optim.AdamW(linear().weights.parameters.values(), lr=0.7)
    load_optimizer(tmp_path / "a", again, keep_options=True)
    assert again.param_groups[0]["lr"] == 0.7
    assert "peak_lr" not in again.param_groups[0]
    assert len(again.state) == 2


def test_the_state_comes_back_as_it_was(stepped: Step, model: ImageModel, tmp_path: Path) -> None:
    state = {"score": -math.inf, "prompts": {"$": [0.1]}, "step": None}
    begin_checkpoint(tmp_path / "a", model, EMA, state, stepped(model))()
    assert load_state(tmp_path / "a") == state


def _with(place: Path, file: str, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    """Change the tensors of a file."""
    tensors = load_file(place / file)
    change(tensors)
    save_file({name: t.contiguous().clone() for name, t in tensors.items()}, place / file)


WRONG_WEIGHTS: dict[str, Callable[[dict[str, torch.Tensor]], None]] = {
    "another shape": lambda t: t.update({"policy/weight": torch.zeros(3)}),
    "whole numbers": lambda t: t.update({"policy/weight": torch.zeros((), dtype=torch.int64)}),
    "one more": lambda t: t.update({"policy/more": torch.zeros(())}),
    "one less": lambda t: t.pop("policy/weight") and None,
    "a set of another shape": lambda t: t.update({"old/weight": torch.zeros(2, 2)}),
    "a set that nobody knows": lambda t: t.update({"x/weight": torch.zeros(())}),
    "none": lambda t: t.clear(),
}


@pytest.mark.parametrize("change", WRONG_WEIGHTS.values(), ids=WRONG_WEIGHTS.keys())
def test_weights_that_are_not_the_models_are_refused_before_any_is_copied(
    linear: Callable[..., Any],
    tmp_path: Path,
    change: Callable[[dict[str, torch.Tensor]], None],
) -> None:
    place = saved(tmp_path, linear(5.0))
    _with(place, WEIGHTS_FILE, change)
    fresh = linear(0.25)
    with pytest.raises(RunFolderError, match="begin a new run with begin_from"):
        load_checkpoint(place, fresh)
    assert fresh.weight.item() == 0.25


@pytest.mark.parametrize("length", [0, 7, 2**31, 2**63, 2**64 - 1, 10**8 + 1])
def test_a_header_of_another_length_is_an_error(
    linear: Callable[..., Any], tmp_path: Path, length: int
) -> None:
    place = saved(tmp_path, linear(5.0))
    file = place / WEIGHTS_FILE
    file.write_bytes(length.to_bytes(8, "little") + file.read_bytes()[8:])
    with pytest.raises(RunFolderError, match="weights.safetensors can't be read"):
        load_checkpoint(place, linear())


def _moment(name: str, value: torch.Tensor) -> Callable[[dict[str, torch.Tensor]], None]:
    return lambda tensors: tensors.update({f"state/0/{name}": value})


WRONG_MOMENTS: dict[str, Callable[[dict[str, torch.Tensor]], None]] = {
    "another shape": _moment("exp_avg", torch.zeros(3)),
    "much larger": _moment("exp_avg_sq", torch.zeros(1000, 1000)),
    "empty": _moment("exp_avg", torch.zeros(0)),
    "whole numbers": _moment("exp_avg", torch.zeros((), dtype=torch.int8)),
    "steps of a shape": _moment("step", torch.zeros(2)),
    "one more": _moment("more", torch.zeros(())),
    "one less": lambda tensors: tensors.pop("state/1/exp_avg") and None,
}


@pytest.mark.parametrize("change", WRONG_MOMENTS.values(), ids=WRONG_MOMENTS.keys())
def test_moments_of_other_shapes_are_refused(
    stepped: Step,
    model: ImageModel,
    tmp_path: Path,
    change: Callable[[dict[str, torch.Tensor]], None],
) -> None:
    optimizer = stepped(model)
    begin_checkpoint(tmp_path / "a", model, "policy", {}, optimizer)()
    _with(tmp_path / "a", OPTIMIZER_FILE, change)
    again = torch.optim.AdamW(model.weights.parameters.values(), lr=0.7)
    with pytest.raises(RunFolderError, match="another state than this run's"):
        load_optimizer(tmp_path / "a", again)
    assert again.state_dict()["state"] == {}


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.pop("optimizer"),
        lambda s: s.update(optimizer=[]),
        lambda s: s["optimizer"].update(param_groups=[]),
        lambda s: s["optimizer"].update(state=3),
        lambda s: s["optimizer"]["param_groups"][0].update(params=[0]),
        lambda s: s["optimizer"]["param_groups"][0].update(lr="fast"),
        lambda s: s["optimizer"]["param_groups"][0].update(betas=[0.9]),
        lambda s: s["optimizer"]["param_groups"][0].pop("eps"),
        lambda s: s["optimizer"]["state"].update(items=[[{"$": "x"}, 1]]),
        lambda s: s["optimizer"]["state"]["items"][0].__setitem__(0, 7),
        lambda s: s["optimizer"]["state"]["items"].pop(),
    ],
)
def test_an_optimizers_state_of_another_form_is_refused(
    stepped: Step, model: ImageModel, tmp_path: Path, change: Callable[[Any], object]
) -> None:
    begin_checkpoint(tmp_path / "a", model, "policy", {}, stepped(model))()
    state = json.loads((tmp_path / "a" / STATE_FILE).read_text())
    change(state)
    (tmp_path / "a" / STATE_FILE).write_text(json.dumps(state))
    again = torch.optim.AdamW(model.weights.parameters.values(), lr=0.7)
    with pytest.raises(RunFolderError, match="remove that checkpoint"):
        load_optimizer(tmp_path / "a", again)


def test_a_parameter_without_a_gradient_yet_has_no_moments(
    linear: Callable[..., ImageModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: Any = linear()
    monkeypatch.setattr(model, "export", lambda folder, values: None)
    optimizer = torch.optim.AdamW(model.weights.parameters.values(), lr=0.1)
    model.bias.grad = torch.ones_like(model.bias)
    optimizer.step()
    begin_checkpoint(tmp_path / "a", model, "policy", {}, optimizer)()
    again = torch.optim.AdamW(linear().weights.parameters.values(), lr=0.7)
    load_optimizer(tmp_path / "a", again)
    assert len(again.state) == 1
