"""LTX-Video: frames, their rate, padding of prompts, and decoding with noise."""

from pathlib import Path

import pytest
import torch
from diffusers import LTXPipeline
from torch import Tensor

from rlfactory.model.ltx import DECODING_SEED, LTX
from rlfactory.model.memory import Memory
from rlfactory.model.precision import Precision
from rlfactory.utils.errors import ModelError


def opened(folder: Path, **options: object) -> LTX:
    known = {"path": str(folder), "size": [32, 64], "frames": 5, "text_tokens": 64, "guidance": 1.0}
    return LTX(torch.device("cpu"), **(known | options))


def latents(model: LTX, count: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, *model.resolution.shape, generator=generator)


@torch.no_grad()
def predicted(model: LTX) -> Tensor:
    condition = model.encode(["a star", "a much longer row of blue squares"])
    return model.predict(latents(model), torch.tensor([0.3, 0.9]), condition)


def test_other_frames_and_sizes_are_refused(ltx_folder: Path) -> None:
    with pytest.raises(ModelError, match=r"model\.frames=4: .* type model\.frames=3 or .*=5"):
        opened(ltx_folder, frames=4)
    with pytest.raises(ModelError, match=r"size=30: multiples of 4"):
        opened(ltx_folder, size=30)
    assert opened(ltx_folder, frames=7).resolution.shape == (4, 4, 8, 16)


def test_padding_is_not_read(ltx_folder: Path) -> None:
    model = opened(ltx_folder)
    text = model.encode(["a star", "a much longer row of blue squares"]).tensors
    changed = text | {"sequence": text["sequence"].masked_fill(~text["mask"][..., None], 7.0)}
    x, t = latents(model), torch.tensor([0.3, 0.9])
    with torch.no_grad():
        torch.testing.assert_close(model._predict(x, t, changed), model._predict(x, t, text))


def test_positions_in_time_are_seconds(ltx_folder: Path) -> None:
    slow, fast = (predicted(opened(ltx_folder, frame_rate=rate)) for rate in (12, 25))
    assert (slow - fast).norm() > 1e-3 * fast.norm()
    assert opened(ltx_folder, frame_rate=12).pipeline_arguments()["frame_rate"] == 12


def test_half_precision_is_near(ltx_folder: Path) -> None:
    half = opened(ltx_folder, precision=Precision(weights="bfloat16", learning="bfloat16"))
    exact = predicted(opened(ltx_folder))
    assert (predicted(half) - exact).norm() < 0.05 * exact.norm()


def test_decoding_with_noise_is_the_pipelines_at_its_seed(ltx_conditioned_folder: Path) -> None:
    model = opened(ltx_conditioned_folder, decode_timestep=0.1, decode_noise_scale=0.3)
    pipe, (x, *_) = model.pipe, latents(model)
    assert isinstance(pipe, LTXPipeline)
    final: list[Tensor] = []

    def keep(_: object, step: int, time: object, values: dict[str, Tensor]) -> dict[str, Tensor]:
        final.append(values["latents"])
        torch.manual_seed(DECODING_SEED)  # where only decoding draws
        return values

    shown = pipe(
        prompt="a star",
        num_inference_steps=2,
        latents=pipe._pack_latents(x[None]),
        height=32,
        width=64,
        output_type="pt",
        callback_on_step_end=keep,
        **model.pipeline_arguments(),
    ).frames
    found = model.decode(pipe._unpack_latents(final[-1], *model.resolution.shape[1:]))
    assert found.shape == (1, 5, 3, 32, 64)
    assert (found - (255 * shown).round()).abs().max() <= 1
    for other in ({"decode_timestep": 0.9}, {"decode_noise_scale": 0.0}):
        assert not torch.equal(opened(ltx_conditioned_folder, **other).decode(x[None]), found)


@pytest.mark.parametrize("slicing", [False, True])
def test_a_video_follows_from_its_latents_alone(
    ltx_conditioned_folder: Path, slicing: bool
) -> None:
    model = opened(ltx_conditioned_folder, memory=Memory(vae_slicing=slicing))
    x = latents(model, 3)
    torch.manual_seed(1)
    together = model.decode(x)
    drawn = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(1), drawn)  # the global generator was left as it was
    assert torch.equal(torch.cat([model.decode(one) for one in x.split(1)]), together)
