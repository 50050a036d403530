"""Passes in half precision keep less for the backward pass and compute the same."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from diffusers import FluxTransformer2DModel
from torch import Tensor, nn

from rlfactory.model.lora import ATTENTION_PROJECTIONS, Lora
from rlfactory.model.saved_activations import keep_halves


def network(*, keeps: bool, checkpointing: bool = False) -> FluxTransformer2DModel:
    """A small FLUX with adapters that add something."""
    torch.manual_seed(0)
    made = FluxTransformer2DModel(
        patch_size=1,
        in_channels=8,
        num_layers=2,
        num_single_layers=2,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=8,
        pooled_projection_dim=8,
        axes_dims_rope=(4, 4, 8),
    )
    lora = Lora(made.to(torch.bfloat16), rank=2, alpha=4.0, targets=ATTENTION_PROJECTIONS)
    with torch.no_grad():
        for parameter in lora.parameters().values():
            parameter.add_(0.1)
    if keeps:
        keep_halves(made)
    if checkpointing:
        made.enable_gradient_checkpointing()
    return made.train(checkpointing)


def predict(network: nn.Module, half: bool = True) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        found: Tensor = network(
            hidden_states=torch.randn(1, 64, 8, generator=generator),
            encoder_hidden_states=torch.randn(1, 16, 8, generator=generator),
            pooled_projections=torch.randn(1, 8, generator=generator),
            timestep=torch.tensor([0.5]),
            img_ids=torch.randn(64, 3, generator=generator),
            txt_ids=torch.zeros(16, 3),
            return_dict=False,
        )[0]
    return found


@contextmanager
def kept() -> Iterator[list[Tensor]]:
    """The tensors that autograd keeps, one for each storage."""
    found: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        found[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    result: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield result
    result.extend(found.values())


def bytes_of(network: nn.Module) -> int:
    with kept() as tensors:
        predict(network)
    own = {p.untyped_storage().data_ptr() for p in network.parameters()}
    return sum(
        t.untyped_storage().nbytes() for t in tensors if t.untyped_storage().data_ptr() not in own
    )


def gradients(network: nn.Module, half: bool = True) -> list[Tensor]:
    predict(network, half).float().pow(2).sum().backward()
    return [p.grad for p in network.parameters() if p.grad is not None]


@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_prediction_is_the_same_and_gradients_nearly(checkpointing: bool) -> None:
    plain, keeping = network(keeps=False), network(keeps=True, checkpointing=checkpointing)
    assert torch.equal(predict(plain), predict(keeping))
    pairs = zip(gradients(plain), gradients(keeping), strict=True)
    for expected, found in pairs:
        assert (found - expected).norm() < 0.02 * expected.norm()


def test_gradients_are_as_near_to_those_of_float32() -> None:
    exact = gradients(network(keeps=False).float(), half=False)

    def error(keeps: bool) -> float:
        found = gradients(network(keeps=keeps))
        return sum(((a - b).norm() / b.norm()).item() for a, b in zip(found, exact, strict=True))

    assert error(keeps=True) < 1.1 * error(keeps=False)


def test_float32_is_bit_for_bit_the_same() -> None:
    plain, keeping = (gradients(network(keeps=k).float(), half=False) for k in (False, True))
    assert all(torch.equal(a, b) for a, b in zip(plain, keeping, strict=True))


def test_autograd_keeps_less() -> None:
    assert bytes_of(network(keeps=True)) < 0.9 * bytes_of(network(keeps=False))


def test_projections_of_one_input_share_its_copy() -> None:
    found: dict[str, Any] = {}
    made = network(keeps=True)
    block = made.single_transformer_blocks[0]
    for name in ("to_q", "to_k", "to_v"):
        getattr(block.attn, name).register_forward_pre_hook(
            lambda _, args, name=name: found.update({name: args[0]})
        )
    predict(made)
    assert {x.data_ptr() for x in found.values()} == {found["to_q"].data_ptr()}
    assert found["to_q"].dtype == torch.bfloat16


def test_a_copied_network_uses_its_own_norms() -> None:
    made = network(keeps=True)
    copied = copy.deepcopy(made)
    for module in made.modules():
        if isinstance(module, nn.RMSNorm):
            nn.init.zeros_(module.weight)
    assert torch.equal(predict(copied), predict(network(keeps=False)))
