"""Wan 2.2 A14B: each row goes through the network of its noise, and either can be trained alone."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, inject_adapter_in_model
from safetensors.torch import load_file
from torch import Tensor, nn

from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError
from rlfactory.model.wan import Wan
from rlfactory.model.wan22 import NetworkPair, Wan22
from rlfactory.run.checkpoint.load import load_initial_weights
from rlfactory.utils.errors import ModelError

Make = Callable[..., Wan22]
Train = Callable[[Wan22], None]
CPU = torch.device("cpu")
TIMES = torch.tensor([0.9, 0.2, 0.75, 0.7499, 1.0])


@pytest.fixture
def make(wan22_folder: Path) -> Make:
    def build(**options: object) -> Wan22:
        known = {"path": str(wan22_folder), "size": [32, 48], "frames": 5, "text_tokens": 16}
        return Wan22(CPU, **({"guidance": 1.0, "lora_rank": 4} | known | options))

    return build


def words(folder: Path, *more: str) -> list[str]:
    small = ["model=wan22", f"model.path={folder}", "model.size=32", "recipe=none", "algo=nft"]
    return [*small, "prompt_cache=null", "model.frames=5", "model.text_tokens=16", *more]


def latents(model: Wan22, rows: int) -> torch.Tensor:
    return torch.randn(rows, *model.resolution.shape, generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def test_a_row_has_the_prediction_of_the_network_of_its_noise(make: Make) -> None:
    model = make(guidance=4.0, guidance_low=2.0)
    condition = model.encode(["a", "b", "c", "a red circle", "d"])
    x = latents(model, 5)
    found = model.predict(x, TIMES, condition)
    text = condition.tensors["sequence"]
    empty = make().encode([""] * 5).tensors["sequence"]
    for i, part in enumerate(["transformer", "transformer_2", *["transformer", "transformer_2"]]):
        network, time = getattr(model.pipe, part), (1000 * TIMES[i : i + 1]).trunc().clamp(max=999)
        seen, blind = (
            network(x[i : i + 1], time, rows[i : i + 1], return_dict=False)[0]
            for rows in (text, empty)
        )
        scale = 4.0 if part == "transformer" else 2.0
        torch.testing.assert_close(found[i : i + 1], blind + scale * (seen - blind))


@pytest.mark.parametrize("finetune", ["lora", "full"])
@pytest.mark.parametrize(("trained", "part"), [("high", "transformer"), ("low", "transformer_2")])
def test_one_of_the_two_is_trained_alone(
    make: Make, finetune: str, trained: str, part: str, train: Train, tmp_path: Path
) -> None:
    model = make(finetune=finetune, trained=trained)
    before = model.predict(latents(model, 5), TIMES, model.encode(["a"] * 5))
    assert {name.partition(".")[0] for name in model.weights.parameters} == {part}
    train(model)
    after = model.predict(latents(model, 5), TIMES, model.encode(["a"] * 5))
    moved = [not torch.equal(a, b) for a, b in zip(before, after, strict=True)]
    assert moved == [(time >= 0.75) == (trained == "high") for time in TIMES.tolist()]
    after.square().sum().backward()
    assert all(p.grad is not None for p in model.weights.parameters.values())
    model.export(tmp_path)
    assert (tmp_path / part).is_dir()
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 1


@torch.no_grad()
def test_a_teacher_has_networks_of_its_own(
    make: Make, train: Train, wan_folder: Path, wan22_folder: Path, tmp_path: Path
) -> None:
    student = make()
    x, condition = latents(student, 5), student.encode(["a"] * 5)
    before, teacher = student.predict(x, TIMES, condition), student.frozen(str(wan22_folder))
    train(student)
    assert torch.equal(teacher.predict(x, TIMES, condition), before)
    assert (student.predict(x, TIMES, condition) != before).flatten(1).any(1).all()
    student.export(tmp_path)
    with pytest.raises(ModelError, match="adapters of one network"):
        student.frozen(str(tmp_path / "transformer_2"))
    with pytest.raises(ModelError, match="is a WanPipeline; the model is .* of two networks"):
        student.frozen(str(wan_folder))


def test_an_export_of_both_begins_both(make: Make, train: Train, tmp_path: Path) -> None:
    model = make()
    train(model)
    model.export(tmp_path)
    assert len(load_file(tmp_path / "pytorch_lora_weights.safetensors")) == 2 * 2 * 2 * 8
    again = make()
    load_initial_weights(tmp_path, again)
    for name, parameter in again.weights.parameters.items():
        assert torch.equal(parameter, model.weights.parameters[name]), name


def test_adapters_of_one_network_begin_that_one_alone(
    make: Make, train: Train, wan22_folder: Path, tmp_path: Path
) -> None:
    for trained in ("low", "high"):
        model = make(trained=trained)
        train(model)
        (folder := tmp_path / trained).mkdir()
        model.export(folder)
        chosen = plan_from_words(*words(wan22_folder, f"begin_from={folder}", "model.trained=low"))
        assert chosen.config["model"]["lora_rank"] == 4
        with pytest.raises(PlanError, match=r"model\.trained"):
            plan_from_words(*words(wan22_folder, f"begin_from={folder}", "model.trained=both"))
        again = make(trained=trained)
        load_initial_weights(folder, again)
        for name, parameter in again.weights.parameters.items():
            assert torch.equal(parameter, model.weights.parameters[name]), name


def test_a_folder_of_one_of_the_two_networks_is_refused(
    wan22_folder: Path, wan_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(PlanError, match=r"high and one for low noise.*model=wan22"):
        plan_from_words(*words(wan22_folder), "model=wan")
    with pytest.raises(ModelError, match="type model=wan22"):
        Wan(CPU, path=str(wan22_folder), size=32, frames=5)
    with pytest.raises(PlanError, match=r"has one network.*model=wan "):
        plan_from_words(*words(wan_folder))
    half = tmp_path / "half"
    shutil.copytree(wan22_folder, half, ignore=shutil.ignore_patterns("transformer_2"))
    with pytest.raises(PlanError, match="lacks the files of transformer_2"):
        plan_from_words(*words(half))
    index = json.loads((half / "model_index.json").read_text())
    (half / "model_index.json").write_text(json.dumps(index | {"transformer_2": [None, None]}))
    with pytest.raises(PlanError, match="holds one of two networks"):
        plan_from_words(*words(half))
    with pytest.raises(ModelError, match="allowed are two networks"):
        Wan22(CPU, path=str(half), size=32, frames=5)


@pytest.mark.parametrize("algorithm", ["awm", "nft", "vgrpo"])
def test_algorithms_that_learn_without_guidance_are_planned(algorithm: str) -> None:
    model = plan_from_words("model=wan22", f"algo={algorithm}").config["model"]
    assert model["guidance"] == 1 < model["guidance_low"]


@torch.no_grad()
def test_without_guidance_at_high_noise_there_is_none(make: Make) -> None:
    model, plain = make(guidance_low=3.0), make()
    found = [m.predict(latents(m, 5), TIMES, m.encode(["a"] * 5)) for m in (model, plain)]
    assert torch.equal(*found)


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


TIMESTEPS = [(100.0, 900.0, 499.0, 500.0, 700.0), (600.0, 500.0), (1.0, 2.0, 3.0)]


@pytest.mark.parametrize("times", TIMESTEPS)
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


def test_rows_of_the_frozen_network_alone_have_a_gradient_of_zeros() -> None:
    made = pair(("transformer_2",))
    made.transformer.requires_grad_(False)
    (found,) = made(**rows(900.0, 800.0))
    found.sum().backward()
    assert all(torch.count_nonzero(p.grad) == 0 for p in made.transformer_2.parameters())
    torch.testing.assert_close(found, made.transformer(**rows(900.0, 800.0))[0])


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
