from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from diffusers import (
    FlowMatchEulerDiscreteScheduler,
    SD3Transformer2DModel,
    StableDiffusion3Pipeline,
)
from torch import Tensor

from rlfactory.dynamics.schedule import Schedule
from rlfactory.model.pipelines.noise_levels import noise_levels
from rlfactory.model.sd3 import SD3
from rlfactory.model.weight_sets import EMA, REFERENCE
from rlfactory.rollout import Condition
from rlfactory.train.sampling.trajectories import integrate_ode
from rlfactory.utils.errors import ModelError

PROMPTS = ["a red circle", "two blue stars", "a red circle"]
MakeSD3 = Callable[..., SD3]


@pytest.fixture
def make(sd3_folder: Path) -> MakeSD3:
    """The adapter on the random pipeline, with small adapters of scale 2."""

    def sd3(seed: int = 0, **options: object) -> SD3:
        known = {"path": str(sd3_folder), "size": 64, "text_tokens": 16}
        lora = {"lora_rank": 4, "lora_alpha": 8.0}
        return SD3(torch.device("cpu"), seed, **(known | lora | options))

    return sd3


def inputs(count: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, 16, 8, 8, generator=generator), torch.linspace(0.2, 1.0, count)


def train(model: SD3, by: float = 0.05) -> None:
    """Move every trainable tensor, as an update would."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.weights.parameters.values():
            parameter += by * torch.randn(parameter.shape, generator=generator)


@torch.no_grad()
def predict(model: SD3, prompts: Sequence[str] = PROMPTS) -> Tensor:
    return model.predict(*inputs(len(prompts)), model.encode(prompts))


@torch.no_grad()
def velocity(transformer: torch.nn.Module, model: SD3) -> Tensor:
    """The same prediction by a network that diffusers or PEFT has loaded."""
    x, t = inputs()
    text = model.encode(PROMPTS).tensors
    return transformer(
        hidden_states=x,
        timestep=1000 * t,
        encoder_hidden_states=text["sequence"],
        pooled_projections=text["pooled"],
        return_dict=False,
    )[0]


@pytest.mark.parametrize("finetune", ["lora", "full"])
def test_shapes_precision_and_what_is_trained(make: MakeSD3, finetune: str) -> None:
    model = make(finetune=finetune)
    assert model.resolution.shape == (16, 8, 8)
    assert model.resolution.shift == 3.0
    prediction = predict(model)
    assert prediction.shape == (3, 16, 8, 8)
    assert prediction.dtype == torch.float32
    assert torch.isfinite(prediction).all()
    trained = {name for name, p in model.network.named_parameters() if p.requires_grad}
    assert trained == set(model.weights.parameters)
    assert all(p.dtype == torch.float32 for p in model.weights.parameters.values())
    assert ("lora" in next(iter(trained))) is (finetune == "lora")
    for part in (model.pipe.vae, model.pipe.text_encoder, model.pipe.text_encoder_3):
        assert not any(p.requires_grad for p in part.parameters())
        assert not part.training
    assert not model.network.training


def test_the_prompt_and_the_time_matter(make: MakeSD3) -> None:
    model = make()
    (x, t), condition = inputs(), model.encode(PROMPTS)
    prediction = model.predict(x, t, condition)
    assert not torch.allclose(prediction, model.predict(x, t / 2, condition), atol=1e-3)
    swapped = model.encode(["a green square"] * 3)
    assert not torch.allclose(prediction, model.predict(x, t, swapped), atol=1e-3)


def test_each_distinct_prompt_is_encoded_once(
    make: MakeSD3, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make()
    asked: list[list[str]] = []
    encode_prompt = model.pipe.encode_prompt

    def counted(prompts: list[str], *args: object, **options: object) -> object:
        asked.append(list(prompts))
        return encode_prompt(prompts, *args, **options)

    monkeypatch.setattr(model.pipe, "encode_prompt", counted)
    first = model.encode(PROMPTS)
    again = model.encode(["two blue stars", "a green square"])
    assert sorted(sum(asked, [])) == ["a green square", "a red circle", "two blue stars"]
    assert torch.equal(first.tensors["sequence"][0], first.tensors["sequence"][2])
    assert torch.equal(first.tensors["pooled"][1], again.tensors["pooled"][0])
    assert not torch.allclose(first.tensors["pooled"][0], first.tensors["pooled"][1])
    assert first.tensors["sequence"].shape == (3, 16 + 16, 128)


def count_evaluations(model: SD3) -> list[int]:
    """The batch sizes that the transformer sees from now on."""
    seen: list[int] = []
    model.network.register_forward_pre_hook(
        lambda _module, _args, kwargs: seen.append(len(kwargs["hidden_states"])), with_kwargs=True
    )
    return seen


def test_guidance_goes_from_the_negative_prompt_through_the_positive(make: MakeSD3) -> None:
    guided = make(guidance=4.5, negative_prompt="noise")
    seen = count_evaluations(guided)
    found = predict(guided)
    assert seen == [6]
    plain = make(guidance=1.0)
    positive, negative = predict(plain), predict(plain, ["noise"] * 3)
    torch.testing.assert_close(found, negative + 4.5 * (positive - negative), rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    "options",
    [{"shift_terminal": 0.1}, {"use_karras_sigmas": True}, {"use_dynamic_shifting": True}],
)
def test_sampling_follows_the_pipelines_scheduler(
    make: MakeSD3, options: dict[str, object]
) -> None:
    model, start = make(), inputs()[0]
    plain = model.resolution
    model.pipe.scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0, base_shift=0.9, **options)
    expected = model.pipe(
        prompt=PROMPTS,
        num_inference_steps=6,
        latents=start.clone(),
        guidance_scale=1.0,
        max_sequence_length=16,
        height=64,
        width=64,
        output_type="latent",
    ).images
    schedule, text = Schedule(kind="diffusers", steps=6), model.encode(PROMPTS)
    found = integrate_ode(model, text, start, noise_levels(schedule, model.resolution_of(64)))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    other = integrate_ode(model, text, start, noise_levels(schedule, plain))
    assert not torch.allclose(other, expected, atol=1e-2)


@pytest.mark.slow
def test_times_can_be_truncated_as_dance_grpo_has_them(make: MakeSD3) -> None:
    (x, t), condition = inputs(), make().encode(PROMPTS)
    whole = (1000 * t).trunc() / 1000
    with torch.no_grad():
        expected = make().predict(x, whole, condition)
        found = make(timesteps="truncated").predict(x, t + 0.0004, condition)
        exact = make().predict(x, t + 0.0004, condition)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(exact, expected, rtol=1e-5, atol=1e-5)


def test_decoding_gives_pictures(make: MakeSD3) -> None:
    images = make().decode(inputs()[0])
    assert images.dtype == torch.uint8
    assert images.shape == (3, 3, 64, 64)


@pytest.mark.parametrize("finetune", ["lora", "full"])
def test_the_reference_is_the_network_before_training(make: MakeSD3, finetune: str) -> None:
    model = make(finetune=finetune)
    model.weights.add(REFERENCE)
    before = predict(model)
    with model.weights(REFERENCE):
        assert torch.equal(predict(model), before)
    train(model)
    assert not torch.allclose(predict(model), before, atol=1e-3)
    with model.weights(REFERENCE):
        assert torch.equal(predict(model), before)


def test_adapters_start_from_the_seed_alone(make: MakeSD3) -> None:
    torch.manual_seed(1)
    first = make(seed=3).weights.state_dict()
    torch.manual_seed(2)
    again, other = make(seed=3).weights.state_dict(), make(seed=4).weights.state_dict()
    assert all(torch.equal(tensor, again[key]) for key, tensor in first.items())
    assert any(not torch.equal(tensor, other[key]) for key, tensor in first.items())
    # A is drawn with deviation 1 / rank, B is zero
    a = torch.cat([t.flatten() for key, t in first.items() if "lora_A" in key])
    assert a.std().item() == pytest.approx(1 / 4, rel=0.05)
    assert all((t == 0).all() for key, t in first.items() if "lora_B" in key)


def lora_pipeline(folder: Path, model: SD3, source: Path) -> torch.nn.Module:
    pipe = StableDiffusion3Pipeline.from_pretrained(source, dtype={"default": torch.float32})
    pipe.load_lora_weights(folder)
    return pipe.transformer


def peft_model(folder: Path, model: SD3, source: Path) -> torch.nn.Module:
    from peft import PeftModel

    base = SD3Transformer2DModel.from_pretrained(
        source, subfolder="transformer", dtype=torch.float32
    )
    return PeftModel.from_pretrained(base, folder)


@pytest.mark.parametrize("load", [lora_pipeline, peft_model])
@pytest.mark.parametrize("targets", [None, ["attn.to_q", "attn.to_v"]])
def test_an_exported_adapter_opens_elsewhere_with_the_same_outputs(
    make: MakeSD3,
    load: Callable[[Path, SD3, Path], torch.nn.Module],
    targets: list[str] | None,
    sd3_folder: Path,
    tmp_path: Path,
) -> None:
    model = make(lora_targets=targets)
    base = predict(model)
    train(model)
    model.export(tmp_path)
    expected = predict(model)
    assert not torch.allclose(expected, base, atol=1e-3)
    found = velocity(load(tmp_path, model, sd3_folder).eval(), model)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("finetune", ["lora", "full"])
def test_the_weights_in_use_are_those_exported(
    make: MakeSD3, finetune: str, tmp_path: Path, sd3_folder: Path
) -> None:
    model = make(finetune=finetune)
    train(model)
    model.weights.add(EMA)
    train(model)
    with model.weights(EMA):
        expected = predict(model)
        model.export(tmp_path)
    if finetune == "lora":
        loaded = lora_pipeline(tmp_path, model, sd3_folder)
    else:
        loaded = SD3Transformer2DModel.from_pretrained(tmp_path / "transformer")
    torch.testing.assert_close(velocity(loaded.eval(), model), expected, rtol=1e-6, atol=1e-6)
    assert not torch.allclose(predict(model), expected, atol=1e-3)


@pytest.mark.parametrize("size", [7, 60, 136])
def test_a_size_that_the_network_can_not_take_is_an_error(make: MakeSD3, size: int) -> None:
    with pytest.raises(ModelError, match=rf"^size={size}: multiples of 8 up to 128"):
        make(size=size)


def test_other_sizes_work(make: MakeSD3) -> None:
    model = make(size=32)
    assert model.resolution.shape == (16, 4, 4)
    latents = torch.randn(1, *model.resolution.shape)
    assert model.predict(latents, torch.ones(1), model.encode(["a"])).shape == latents.shape
    assert model.decode(latents).shape == (1, 3, 32, 32)


def test_errors_name_their_key(make: MakeSD3) -> None:
    with pytest.raises(ModelError, match=r"model\.lora_targets=\['nonesuch'\]"):
        make(lora_targets=["nonesuch"])
    with pytest.raises(ModelError, match=r"model\.path=zoo:nonesuch"):
        make(path="zoo:nonesuch")


def test_a_condition_has_one_row_a_prompt(make: MakeSD3) -> None:
    condition = make().encode(PROMPTS)
    assert isinstance(condition, Condition)
    assert {len(tensor) for tensor in condition.tensors.values()} == {3}
