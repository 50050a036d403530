"""Two networks as one: each row has the bits and the gradient of the network of its noise."""

from typing import Any

import pytest
import torch
from peft import LoraConfig, inject_adapter_in_model
from torch import Tensor, nn

from rlfactory.model.network_pair import NetworkPair


class Network(nn.Module):
    """A projection, with what diffusers' networks have beside `forward`."""

    _repeated_blocks = ("Block",)
    _no_split_modules = ("Block",)

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
        self.checkpoints, self.backend, self.batches = False, "", 0
        self.config = {"seed": seed}
        self.attn_processors = {f"processor of {seed}": None}

    def forward(self, *, hidden: Tensor, timestep: Tensor, scale: float) -> tuple[Tensor]:
        self.batches += 1
        return (self.linear(hidden) * scale + timestep[:, None],)

    def add_adapter(self, config: LoraConfig) -> None:
        inject_adapter_in_model(config, self)

    def enable_gradient_checkpointing(self) -> None:
        self.checkpoints = True

    def set_attention_backend(self, backend: str) -> None:
        self.backend = backend


def pair(trained: tuple[str, ...] = ("transformer", "transformer_2")) -> NetworkPair:
    return NetworkPair(Network(0), Network(1), boundary=500.0, trained=trained)


def rows(*timesteps: float) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(2)
    hidden = torch.randn(len(timesteps), 3, generator=generator)
    return {"hidden": hidden, "timestep": torch.tensor(timesteps), "scale": 2.0}


TIMES = [(100.0, 900.0, 499.0, 500.0, 700.0), (600.0, 500.0), (1.0, 2.0, 3.0)]


@pytest.mark.parametrize("times", TIMES)
def test_a_row_is_that_of_its_own_network(times: tuple[float, ...]) -> None:
    made, inputs = pair(), rows(*times)
    (found,) = made(**inputs)
    for i, timestep in enumerate(times):
        alone = made.transformer if timestep >= 500 else made.transformer_2
        own = {k: v[i : i + 1] if isinstance(v, Tensor) else v for k, v in inputs.items()}
        torch.testing.assert_close(found[i : i + 1], alone(**own)[0])


def test_a_network_without_rows_is_not_run() -> None:
    made = pair()
    made(**rows(600.0, 700.0))
    assert (made.transformer.batches, made.transformer_2.batches) == (1, 0)


def test_gradient_passes_through_the_network_of_the_row() -> None:
    made = pair()
    (found,) = made(**rows(900.0, 100.0))
    found[0].sum().backward()
    high, low = made.transformer.linear.weight.grad, made.transformer_2.linear.weight.grad
    assert high is not None
    assert high.norm() > 0
    assert low is None or low.norm() == 0


def test_without_values_all_rows_take_the_first() -> None:
    made = pair().to("meta")
    inputs = {k: v.to("meta") if isinstance(v, Tensor) else v for k, v in rows(1.0, 900.0).items()}
    (found,) = made(**inputs)
    assert found.shape == (2, 3)
    assert made.transformer_2.batches == 0


@pytest.mark.parametrize("trained", [("transformer",), ("transformer_2",)])
def test_adapters_are_of_what_is_trained(trained: tuple[str, ...]) -> None:
    made = pair(trained)
    made.add_adapter(LoraConfig(r=1, target_modules=["linear"]))
    names = {name.partition(".")[0] for name, _ in made.named_parameters() if "lora" in name}
    assert names == {*trained}
    assert made.peft_config["default"].r == 1


def test_both_have_what_is_set_and_the_first_what_is_read() -> None:
    made = pair()
    made.enable_gradient_checkpointing()
    made.set_attention_backend("math")
    both = (made.transformer, made.transformer_2)
    assert [(n.checkpoints, n.backend) for n in both] == [(True, "math")] * 2
    assert made.config == {"seed": 0}
    assert [*made.attn_processors] == ["processor of 0"]
    assert made._repeated_blocks == made._no_split_modules == ("Block",)
