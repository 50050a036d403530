from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from diffusers import (
    FlowMatchEulerDiscreteScheduler,
)
from torch import Tensor

from rlfactory.dynamics.schedule import Schedule
from rlfactory.model.flux import Flux
from rlfactory.model.pipelines.noise_levels import noise_levels
from rlfactory.train.sampling.trajectories import integrate_ode
from rlfactory.utils.errors import ModelError

PROMPTS = ["a red circle", "two blue stars", "a red circle"]
MakeFlux = Callable[..., Flux]


@pytest.fixture
def make(flux_folders: dict[str, Path]) -> MakeFlux:
    """The adapter on the random `dev`, with small adapters of scale 2."""

    def flux(seed: int = 0, **options: object) -> Flux:
        known = {"path": str(flux_folders["dev"]), "size": 64, "text_tokens": 16}
        lora = {"lora_rank": 4, "lora_alpha": 8.0}
        return Flux(torch.device("cpu"), seed, **(known | lora | options))

    return flux


@pytest.fixture(scope="module")
def models(flux_folders: dict[str, Path]) -> dict[str, Flux]:
    """One `dev` and one `schnell`, to look at only."""
    device, size = torch.device("cpu"), {"size": 64, "text_tokens": 16}
    schnell = str(flux_folders["schnell"])
    return {
        "dev": Flux(device, path=str(flux_folders["dev"]), **size),
        "schnell": Flux(device, path=schnell, embedded_guidance=None, **size),
    }


@pytest.fixture
def dev(models: dict[str, Flux]) -> Flux:
    return models["dev"]


def inputs(count: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, 16, 8, 8, generator=generator), torch.linspace(0.2, 1.0, count)


@torch.no_grad()
def predict(model: Flux, prompts: Sequence[str] = PROMPTS) -> Tensor:
    return model.predict(*inputs(len(prompts)), model.encode(prompts))


def packed(x: Tensor) -> Tensor:
    """Tokens `[B, h w / 4, 4 C]`: rows of two by two latents, each channel's four in a row."""
    rows = [
        x[:, :, i : i + 2, j : j + 2].flatten(1)
        for i in range(0, x.shape[2], 2)
        for j in range(0, x.shape[3], 2)
    ]
    return torch.stack(rows, dim=1)


@torch.no_grad()
def velocity(
    transformer: torch.nn.Module, model: Flux, guidance: float | None = 3.5, t: Tensor | None = None
) -> Tensor:
    """The same prediction, still packed, by a network that diffusers or PEFT has loaded."""
    x, times = inputs()
    text = model.encode(PROMPTS).tensors
    ids = [[0, i, j] for i in range(4) for j in range(4)]
    return transformer(
        hidden_states=packed(x),
        timestep=times if t is None else t,
        guidance=None if guidance is None else torch.full([3], guidance),
        encoder_hidden_states=text["sequence"],
        pooled_projections=text["pooled"],
        txt_ids=torch.zeros(16, 3),
        img_ids=torch.tensor(ids, dtype=torch.float32),
        return_dict=False,
    )[0]


@pytest.mark.parametrize("finetune", ["lora", "full"])
def test_shapes_precision_and_what_is_trained(make: MakeFlux, finetune: str) -> None:
    model = make(finetune=finetune)
    assert model.resolution.shape == (16, 8, 8)
    assert model.resolution.tokens == 16
    prediction = predict(model)
    assert prediction.shape == (3, 16, 8, 8)
    assert prediction.dtype == torch.float32
    assert torch.isfinite(prediction).all()
    trained = {name for name, p in model.network.named_parameters() if p.requires_grad}
    assert trained == set(model.weights.parameters)
    assert all(p.dtype == torch.float32 for p in model.weights.parameters.values())
    assert ("lora" in next(iter(trained))) is (finetune == "lora")
    for part in (model.pipe.vae, model.pipe.text_encoder, model.pipe.text_encoder_2):
        assert not any(p.requires_grad for p in part.parameters())
        assert not part.training
    assert not model.network.training


def test_adapters_are_on_the_attention_of_both_kinds_of_blocks(dev: Flux) -> None:
    names = [name.split(".lora_")[0].split(".") for name in dev.weights.parameters]
    found = {
        kind: {".".join(n[3:]) for n in names if n[0] == kind} for kind in {n[0] for n in names}
    }
    inputs_of = {"to_q", "to_k", "to_v"}
    of_text = {"add_q_proj", "add_k_proj", "add_v_proj", "to_add_out"}
    assert found == {
        "transformer_blocks": {*inputs_of, "to_out.0", *of_text},
        "single_transformer_blocks": inputs_of,
    }


# diffusion.md 1.0: e^mu of 384^2, 512^2, 720^2 and 1024^2 pictures, at 8 pixels a latent
@pytest.mark.parametrize(
    ("size", "shift"), [(384, 1.740490), (512, 1.877611), (720, 2.224295), (1024, 3.158193)]
)
def test_the_shift_of_dev_grows_with_the_picture(make: MakeFlux, size: int, shift: float) -> None:
    model = make(size=size)
    assert model.resolution.tokens == (size // 16) ** 2
    assert model.resolution.shift == pytest.approx(shift, abs=1e-6)


def test_schnell_has_no_shift(models: dict[str, Flux]) -> None:
    assert models["schnell"].resolution.shift == 1.0


@pytest.mark.parametrize(("name", "guidance"), [("dev", 3.5), ("schnell", None)])
def test_it_is_the_network_on_packed_latents(
    models: dict[str, Flux], name: str, guidance: float | None
) -> None:
    model = models[name]
    found = packed(predict(model))
    torch.testing.assert_close(
        found, velocity(model.network, model, guidance), rtol=1e-5, atol=1e-5
    )


def test_guidance_is_an_input_and_costs_no_evaluation(make: MakeFlux, dev: Flux) -> None:
    model = make(embedded_guidance=1.0)
    seen: list[int] = []
    model.network.register_forward_pre_hook(
        lambda _module, _args, kwargs: seen.append(len(kwargs["hidden_states"])), with_kwargs=True
    )
    found = packed(predict(model))
    assert seen == [3]
    expected = velocity(dev.network, dev, 1.0)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(found, packed(predict(dev)), atol=1e-3)


def test_guidance_by_a_second_evaluation_goes_with_the_input(make: MakeFlux, dev: Flux) -> None:
    model = make(guidance=4.0, negative_prompt="stars")
    model.evaluations.read_and_reset()
    found = predict(model)
    assert model.evaluations.read_and_reset().forward == 2 * len(PROMPTS)
    positive, negative = predict(dev), predict(dev, ["stars"] * 3)
    torch.testing.assert_close(found, negative + 4.0 * (positive - negative), rtol=0, atol=1e-4)
    assert not torch.allclose(found, positive, atol=1e-2)


def test_times_can_be_truncated_as_dance_grpo_has_them(make: MakeFlux, dev: Flux) -> None:
    model, (x, _) = make(timesteps="truncated"), inputs()
    with torch.no_grad():
        found = model.predict(x, torch.tensor([0.9037, 0.7898, 0.2731]), model.encode(PROMPTS))
    expected = velocity(dev.network, dev, t=torch.tensor([0.903, 0.789, 0.273]))
    torch.testing.assert_close(packed(found), expected, rtol=1e-5, atol=1e-5)
    exact = velocity(dev.network, dev, t=torch.tensor([0.9037, 0.7898, 0.2731]))
    assert not torch.allclose(packed(found), exact, rtol=1e-5, atol=1e-5)


def test_sampling_follows_the_pipelines_scheduler(make: MakeFlux) -> None:
    model, start = make(), inputs()[0]
    plain = model.resolution
    model.pipe.scheduler = FlowMatchEulerDiscreteScheduler(
        use_dynamic_shifting=True, base_shift=1.2, max_shift=1.6, shift_terminal=0.05
    )
    expected = model.pipe(
        prompt=PROMPTS,
        num_inference_steps=4,
        latents=packed(start),
        guidance_scale=3.5,
        max_sequence_length=16,
        height=64,
        width=64,
        output_type="latent",
    ).images
    schedule, text = Schedule(kind="uniform", steps=4), model.encode(PROMPTS)
    found = integrate_ode(model, text, start, noise_levels(schedule, model.resolution_of(64)))
    torch.testing.assert_close(packed(found), expected, rtol=1e-4, atol=1e-4)
    other = integrate_ode(model, text, start, noise_levels(schedule, plain))
    assert not torch.allclose(packed(other), expected, atol=1e-2)


def test_each_distinct_prompt_is_encoded_once(dev: Flux, asked: Callable[..., list[str]]) -> None:
    seen = asked(dev.pipe)
    first = dev.encode(["a big star", "one red square", "a big star"]).tensors
    again = dev.encode(["one red square", "a green square"]).tensors
    assert sorted(seen) == ["a big star", "a green square", "one red square"]
    assert (first["sequence"].shape, first["pooled"].shape) == ((3, 16, 128), (3, 16))
    for name in ("sequence", "pooled"):
        assert torch.equal(first[name][0], first[name][2])
        assert torch.equal(first[name][1], again[name][0])
        assert not torch.allclose(first[name][0], first[name][1])


def test_samples_do_not_depend_on_their_neighbours(dev: Flux) -> None:
    (x, t), whole = inputs(), predict(dev)
    with torch.no_grad():
        alone = dev.predict(x[1:2], t[1:2], dev.encode(PROMPTS[1:2]))
    torch.testing.assert_close(alone, whole[1:2], rtol=1e-5, atol=1e-5)


def test_loading_says_nothing(make: MakeFlux, capfd: pytest.CaptureFixture[str]) -> None:
    make()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [("dev", None, "=null; allowed is a number"), ("schnell", 3.5, "=3.5; allowed is null")],
)
def test_guidance_that_the_network_does_not_know_is_refused(
    make: MakeFlux, flux_folders: dict[str, Path], name: str, given: float | None, said: str
) -> None:
    with pytest.raises(ModelError, match=rf"^model\.embedded_guidance{said}"):
        make(path=str(flux_folders[name]), embedded_guidance=given)


def test_sizes_are_multiples_of_sixteen(make: MakeFlux) -> None:
    with pytest.raises(ModelError, match=r"^size=72: multiples of 16"):
        make(size=72)
    model = make(size=32)
    assert model.resolution.shape == (16, 4, 4)
    latents = torch.randn(1, *model.resolution.shape)
    assert model.predict(latents, torch.ones(1), model.encode(["a"])).shape == latents.shape
    assert model.decode(latents).shape == (1, 3, 32, 32)
