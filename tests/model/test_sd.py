import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from tiny_pipelines import with_prediction
from torch import Tensor

from rlfactory.model.sd import SD
from rlfactory.model.weight_sets import REFERENCE
from rlfactory.utils.errors import ModelError

PROMPTS = ["a red circle", "two blue stars", "a red circle"]
MakeSD = Callable[..., SD]


@pytest.fixture
def make(sd_folder: Path) -> MakeSD:
    """The adapter on the random pipeline, with small adapters of scale 2."""

    def sd(seed: int = 0, **options: object) -> SD:
        known = {"path": str(sd_folder), "size": 64, "lora_rank": 4, "lora_alpha": 8.0}
        return SD(torch.device("cpu"), seed, **(known | options))

    return sd


@pytest.fixture(scope="module")
def plain(sd_folder: Path) -> SD:
    """One without guidance, to look at only."""
    return SD(torch.device("cpu"), path=str(sd_folder), size=64, guidance=1.0)


@pytest.fixture(scope="module")
def guided(sd_folder: Path) -> SD:
    """One with guidance, to look at only."""
    return SD(
        torch.device("cpu"), path=str(sd_folder), size=64, guidance=5.0, negative_prompt="stars"
    )


def inputs(count: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, 4, 8, 8, generator=generator), torch.linspace(0.2, 1.0, count)


@torch.no_grad()
def predict(model: SD, prompts: Sequence[str] = PROMPTS) -> Tensor:
    return model.predict(*inputs(len(prompts)), model.encode(prompts))


@torch.no_grad()
def noise(unet: torch.nn.Module, model: SD) -> Tensor:
    """The same prediction by a network that diffusers or PEFT has loaded."""
    text = model.encode(PROMPTS).tensors["sequence"]
    return unet(inputs()[0], torch.tensor([200, 600, 999]), text, return_dict=False)[0]


@pytest.mark.parametrize("finetune", ["lora", "full"])
def test_shapes_precision_and_what_is_trained(make: MakeSD, finetune: str) -> None:
    model = make(finetune=finetune)
    assert model.resolution.shape == (4, 8, 8)
    assert (model.process, model.forward_process.name, model.resolution.shift) == ("vp", "vp", 1.0)
    prediction = predict(model)
    assert prediction.shape == (3, 4, 8, 8)
    assert prediction.dtype == torch.float32
    assert torch.isfinite(prediction).all()
    trained = {name for name, p in model.network.named_parameters() if p.requires_grad}
    assert trained == set(model.weights.parameters)
    assert all(p.dtype == torch.float32 for p in model.weights.parameters.values())
    assert ("lora" in next(iter(trained))) is (finetune == "lora")
    for part in (model.pipe.vae, model.pipe.text_encoder):
        assert not any(p.requires_grad for p in part.parameters())
        assert not part.training
    assert not model.network.training


def test_adapters_are_on_both_kinds_of_attention(plain: SD) -> None:
    names = {name.split(".lora_")[0].split(".attn")[1] for name in plain.weights.parameters}
    projections = ["to_q", "to_k", "to_v", "to_out.0"]
    assert names == {f"{kind}.{name}" for kind in (1, 2) for name in projections}
    assert (
        len(plain.weights.parameters) == 2 * 8 * 4
    )  # A and B; one block down, in the middle, two up


def test_the_forward_process_is_that_of_the_scheduler(plain: SD) -> None:
    abar = plain.forward_process.alphas_cumprod
    # diffusion.md 1.1: Stable Diffusion's scaled-linear betas, .00085 to .012
    for timestep, value in ((981, 0.0057755), (501, 0.27499884), (21, 0.98038065), (1, 0.99829602)):
        assert abar[timestep].item() == pytest.approx(value, abs=1e-6)


def test_unguided_it_is_the_network_at_whole_timesteps(plain: SD) -> None:
    assert torch.equal(predict(plain), noise(plain.network, plain))
    (x, _), condition = inputs(), plain.encode(PROMPTS)

    @torch.no_grad()
    def at(t: float) -> Tensor:
        return plain.predict(x, torch.full([3], t), condition)

    assert torch.equal(at(0.5004), at(0.5))
    assert not torch.equal(at(0.501), at(0.5))


def test_guidance_goes_from_the_negative_prompt_through_the_positive(guided: SD, plain: SD) -> None:
    seen: list[int] = []
    hook = guided.network.register_forward_pre_hook(lambda _, args: seen.append(len(args[0])))
    found = predict(guided)
    hook.remove()
    assert seen == [6]
    positive, negative = predict(plain), predict(plain, ["stars"] * 3)
    torch.testing.assert_close(found, negative + 5.0 * (positive - negative), rtol=0, atol=1e-4)
    assert not torch.allclose(found, positive, atol=1e-2)


def test_both_halves_of_guidance_get_gradient(make: MakeSD) -> None:
    model = make(guidance=5.0, finetune="full")
    prediction = model.predict(*inputs(), model.encode(PROMPTS))
    prediction.sum().backward()
    # n + 5 (p - n) moves with the last bias as n and p do; with n detached it would 5 times as much
    expected = torch.full([4], 3.0 * 8 * 8)
    torch.testing.assert_close(model.network.conv_out.bias.grad, expected, rtol=1e-4, atol=0)


def test_each_distinct_prompt_is_encoded_once(plain: SD, asked: Callable[..., list[str]]) -> None:
    model, prompts = plain, ["a big star", "one red square", "a big star"]
    seen = asked(model.pipe)
    first = model.encode(prompts).tensors["sequence"]
    again = model.encode(["one red square", "a green square"]).tensors["sequence"]
    assert sorted(seen) == ["a big star", "a green square", "one red square"]
    assert first.shape == (3, 16, 16)
    assert torch.equal(first[0], first[2])
    assert torch.equal(first[1], again[0])
    assert not torch.allclose(first[0], first[1])


def test_samples_do_not_depend_on_their_neighbours(guided: SD) -> None:
    (x, t), whole = inputs(), predict(guided)
    with torch.no_grad():
        alone = guided.predict(x[1:2], t[1:2], guided.encode(PROMPTS[1:2]))
    torch.testing.assert_close(alone, whole[1:2], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("finetune", ["lora", "full"])
def test_the_reference_is_the_network_before_training(
    make: MakeSD, finetune: str, train: Callable[[SD], None]
) -> None:
    model = make(finetune=finetune)
    model.weights.add(REFERENCE)
    before = predict(model)
    train(model)
    assert not torch.allclose(predict(model), before, atol=1e-3)
    with model.weights(REFERENCE):
        assert torch.equal(predict(model), before)


def test_loading_says_nothing(make: MakeSD, capfd: pytest.CaptureFixture[str]) -> None:
    make()
    assert capfd.readouterr() == ("", "")


def test_another_prediction_is_refused(make: MakeSD, sd_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    shutil.copytree(sd_folder, folder)
    with_prediction(folder, "sample")
    with pytest.raises(ModelError, match=r"^model\.path=.*other predicts sample.*v_prediction$"):
        make(path=str(folder))


def test_a_teacher_predicts_what_its_student_does(
    plain: SD, sd_folder: Path, sd_v_folder: Path
) -> None:
    assert plain.frozen(str(sd_folder)).pipe.unet is not plain.pipe.unet
    with pytest.raises(ModelError, match="predicts v_prediction; the model is .* epsilon"):
        plain.frozen(str(sd_v_folder))


def test_sizes_are_multiples_of_eight(make: MakeSD) -> None:
    with pytest.raises(ModelError, match=r"^size=60: multiples of 8"):
        make(size=60)
    model = make(size=32)
    assert model.resolution.shape == (4, 4, 4)
    latents = torch.randn(1, *model.resolution.shape)
    assert model.predict(latents, torch.ones(1), model.encode(["a"])).shape == latents.shape
    assert model.decode(latents).shape == (1, 3, 32, 32)
