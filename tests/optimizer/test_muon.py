"""Muon on hidden matrices and AdamW on the rest, as one optimizer."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rlfactory.model.causal_lm import CausalLM
from rlfactory.model.sd3 import SD3
from rlfactory.optimizer.muon import Muon, hidden_matrices

CPU = torch.device("cpu")


def parameters() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    shapes: list[tuple[int, ...]] = [(6, 4), (3, 8), (5,), (6, 2)]
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]


def descend(made: list[nn.Parameter], step: Callable[[], Any], count: int) -> list[Tensor]:
    for _ in range(count):
        for number, parameter in enumerate(made):
            parameter.grad = (parameter.detach() - number).sin()
        step()
    return [parameter.detach().clone() for parameter in made]


def model_of(matrices: list[nn.Parameter]) -> Any:
    """A model of these matrices alone."""
    named = {f"{number}.weight": matrix for number, matrix in enumerate(matrices)}
    return SimpleNamespace(weights=SimpleNamespace(parameters=named))


def muon(made: list[nn.Parameter]) -> Muon:
    groups = [{"params": made[:2]}, {"params": made[2:], "lr": 0.03, "weight_decay": 0.0}]
    return Muon(groups, model_of(made[:2]), lr=0.02, weight_decay=0.1)


def test_its_steps_are_those_of_torch() -> None:
    mine, theirs = parameters(), parameters()
    matrices = torch.optim.Muon(
        theirs[:2], lr=0.02, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"
    )
    rest = torch.optim.AdamW(theirs[2:], lr=0.03, weight_decay=0.0)

    def both() -> None:
        matrices.step()
        rest.step()

    found, expected = descend(mine, muon(mine).step, 3), descend(theirs, both, 3)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_a_matrix_moves_as_far_as_by_adamw_in_all_directions() -> None:
    """Without decay: singular values of the step are 0.2 lr sqrt(max(rows, columns)), nearly."""
    (matrix, *_) = made = parameters()
    before = matrix.detach().clone()
    descend(made, Muon([{"params": made}], model_of([matrix]), lr=0.1, weight_decay=0.0).step, 1)
    singular = torch.linalg.svdvals(before - matrix.detach()) / (0.2 * 0.1 * 6**0.5)
    assert 0.5 < singular.min() <= singular.max() < 1.5


def test_a_saved_state_goes_on_bit_for_bit() -> None:
    whole, resumed = parameters(), parameters()
    expected = descend(whole, muon(whole).step, 4)
    first = muon(resumed)
    descend(resumed, first.step, 2)
    second = muon(resumed)
    second.load_state_dict(deepcopy(first.state_dict()))
    for one, other in zip(descend(resumed, second.step, 2), expected, strict=True):
        assert torch.equal(one, other)


def test_a_changed_learning_rate_holds_after_loading() -> None:
    made = parameters()
    optimizer = muon(made)
    descend(made, optimizer.step, 1)
    optimizer.load_state_dict(optimizer.state_dict())
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    before = [parameter.detach().clone() for parameter in made]
    assert all(map(torch.equal, descend(made, optimizer.step, 1), before))


@pytest.mark.parametrize("finetune", ["full", "lora"])
def test_of_a_language_model_it_moves_hidden_matrices(gpt2_folder: Path, finetune: Any) -> None:
    model = CausalLM(CPU, path=str(gpt2_folder), finetune=finetune, value_lr=0.5)
    names = {id(p): name for name, p in model.weights.parameters.items()}
    chosen = {names[id(p)] for p in hidden_matrices(model)}
    assert chosen
    assert not any(word in name for name in chosen for word in ("wte", "wpe", "critic", "lm_head"))
    assert all("lora" in name for name in chosen) == (finetune == "lora")
    optimizer = Muon(model.parameter_groups(), model, lr=0.1)
    moved = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert moved == names.keys()
    rates = {
        names[id(p)].startswith("critic."): group["lr"]
        for group in optimizer.param_groups
        for p in group["params"]
    }
    assert rates == {False: 0.1, True: 0.5}


@pytest.mark.parametrize("finetune", ["full", "lora"])
def test_of_an_image_model_it_moves_hidden_matrices(sd3_folder: Path, finetune: Any) -> None:
    model = SD3(CPU, path=str(sd3_folder), finetune=finetune, size=64, text_tokens=16)
    names = {id(p): name for name, p in model.weights.parameters.items()}
    chosen = {names[id(p)] for p in hidden_matrices(model)}
    assert any("attn" in name for name in chosen)
    assert not any(word in name for name in chosen for word in ("proj_out", "context_embedder"))
    assert all("lora" in name for name in chosen) == (finetune == "lora")


def test_shards_are_refused(refused: Callable[..., str]) -> None:
    said = refused("check", "hardware=fsdp2", "hardware.processes=2", "optimizer=muon")
    assert "optimizer" in said
    assert "optimizer=adamw" in said
