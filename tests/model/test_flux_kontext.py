"""FLUX.1 Kontext: pictures as conditions, from the prompt to the network."""

from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest
import torch
from PIL import Image

from rlfactory.dynamics.schedule import Schedule
from rlfactory.model.flux_kontext import FluxKontext
from rlfactory.model.pipelines.embedding_cache import PromptCache
from rlfactory.model.pipelines.noise_levels import noise_levels
from rlfactory.prompts.edits import EditsPrompts
from rlfactory.prompts.ops.pictured import PicturedText, png_of
from rlfactory.tools.export.snippet import Source, image_snippet
from rlfactory.train.sampling.trajectories import integrate_ode
from rlfactory.utils.errors import ModelError

Make = Callable[..., FluxKontext]
TEXT = "make the circle red"


def picture(seed: int, height: int = 64, width: int = 64) -> Image.Image:
    generator = torch.Generator().manual_seed(seed)
    small = torch.randint(0, 256, (4, 4, 3), generator=generator, dtype=torch.uint8)
    return Image.fromarray(small.numpy()).resize((width, height), Image.Resampling.BICUBIC)


def asked(seed: int, text: str = TEXT, **size: int) -> PicturedText:
    return PicturedText(text, png_of(picture(seed, **size)))


@pytest.fixture
def make(flux_kontext_folder: Path) -> Make:
    def build(**options: object) -> FluxKontext:
        known = {"path": str(flux_kontext_folder), "size": 64, "text_tokens": 16}
        return FluxKontext(torch.device("cpu"), **(known | options))

    return build


def latents(model: FluxKontext, rows: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(rows, *model.resolution.shape, generator=generator)


@torch.no_grad()
@pytest.mark.parametrize("size", [(96, 96), (64, 66), (32, 32)])
def test_pictures_of_another_size_are_resized_as_the_pipeline_resizes(
    make: Make, size: tuple[int, int]
) -> None:
    model = make(guidance=3.0, negative_prompt="stars")
    prompts = [asked(i, height=size[0], width=size[1]) for i in range(2)]
    noise = latents(model, 2)
    levels = noise_levels(Schedule(kind="uniform", steps=3), model.resolution)
    found = integrate_ode(model, model.encode(prompts), noise, levels)
    arguments = model.pipeline_arguments() | {"negative_prompt": ["stars"] * 2}
    pipe = model.pipe
    expected = pipe(
        image=[pipe.image_processor.resize(prompt.open(), 64, 64) for prompt in prompts],
        prompt=[TEXT] * 2,
        num_inference_steps=3,
        latents=pipe._pack_latents(noise, *noise.shape),
        height=64,
        width=64,
        output_type="latent",
        **arguments,
    ).images
    expected = pipe._unpack_latents(expected, 64, 64, 8)
    assert (found - expected).norm() < 3e-6 * expected.norm()


@torch.no_grad()
def test_both_passes_of_guidance_see_the_prompts_own_picture(make: Make) -> None:
    model = make(guidance=3.0)
    x, t = latents(model, 2), torch.full((2,), 0.5)
    condition = model.encode([asked(0), asked(1)])
    guided = model.predict(x, t, condition)
    plain = make()
    positive = plain.predict(x, t, condition)
    empty = plain.encode([asked(0, ""), asked(1, "")])
    negative = plain.predict(x, t, empty)
    torch.testing.assert_close(guided, negative + 3.0 * (positive - negative), atol=1e-5, rtol=0)
    assert (positive[0] - positive[1]).norm() > 1e-3 * positive.norm()


@torch.no_grad()
def test_an_evaluation_may_have_another_size_than_its_pictures(make: Make) -> None:
    model = make()
    x = torch.randn(1, *model.resolution_of([96, 64]).shape)
    assert model.predict(x, torch.tensor([0.5]), model.encode([asked(0)])).shape == x.shape
    schedule = {"kind": "uniform", "steps": 2, "shift": None}
    config = {"model": {"size": 64}, "evaluation": {"size": [96, 64]}, "schedule": schedule}
    model.resolution = model.resolution_of([96, 64])
    sigmas = noise_levels(Schedule(**schedule), model.resolution)
    code = image_snippet(model, config, sigmas, Source(model.path), prompt=TEXT).code
    assert "height=96, width=64" in code
    assert "Image.new('RGB', (64, 64)" in code


def test_the_cache_tells_pictures_and_sizes_apart(make: Make, tmp_path: Path) -> None:
    prompts = (asked(0), asked(1), asked(0))
    cache = PromptCache(tmp_path, prompts)
    first = make(prompt_cache=cache)
    first.prepare()
    assert first.pipe.text_encoder is None
    again = make(prompt_cache=PromptCache(tmp_path, prompts))
    assert again.pipe.text_encoder is None, "all are stored"
    stored, whole = (model.encode(prompts).tensors["picture"] for model in (again, make()))
    assert torch.equal(stored, whole)
    assert torch.equal(stored[0], stored[2])
    assert not torch.equal(stored[0], stored[1])
    other = make(prompt_cache=PromptCache(tmp_path, prompts), size=32)
    assert other.pipe.text_encoder is not None, "pictures of another size are others"
    assert other.encode(prompts).tensors["picture"].shape == (3, 16, 4, 4)


def test_a_picture_by_path_is_known_by_its_content(make: Make, tmp_path: Path) -> None:
    files = [tmp_path / f"{i}.png" for i in range(3)]
    for file, seed in zip(files, (0, 0, 1), strict=True):
        picture(seed).save(file)
    model = make(prompt_cache=PromptCache(tmp_path / "cache", ()))
    rows = model.encode([PicturedText(TEXT, str(file)) for file in files]).tensors["picture"]
    assert torch.equal(rows[0], rows[1])
    assert not torch.equal(rows[0], rows[2])
    assert len([*(tmp_path / "cache").rglob("*.safetensors")]) == 2


def test_every_prompt_needs_a_picture_and_no_other_model_takes_one(
    make: Make, flux_folders: dict[str, Path]
) -> None:
    with pytest.raises(ModelError, match=r"'a cat' has no picture, .* edits pictures: give it one"):
        make().encode([asked(0), "a cat"])
    from rlfactory.model.flux import Flux

    flux = Flux(torch.device("cpu"), path=str(flux_folders["dev"]), size=64, text_tokens=16)
    with pytest.raises(ModelError, match="has a picture: a FluxPipeline takes none"):
        flux.encode([asked(0)])


def test_the_pipeline_of_the_other_class_is_refused(flux_folders: dict[str, Path]) -> None:
    with pytest.raises(ModelError, match=r"FluxPipeline.*type model=flux model\.path"):
        FluxKontext(torch.device("cpu"), path=str(flux_folders["dev"]), size=64)


def test_edits_of_one_instruction_are_told_apart_in_a_rollout() -> None:
    prompts = EditsPrompts(edits=["remove"]).held_out(6)
    texts = {str(prompt.text) for prompt in prompts}
    assert len(texts) < len({prompt.text for prompt in prompts}) == 6
    assert Image.open(BytesIO(prompts[0].text.content)).size == (64, 64)
