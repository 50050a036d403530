"""Wan image to video: the picture is the first frame, from the prompt to a run's GIF."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from PIL import Image
from tiny_pipelines import with_pictures

import rlfactory as rl
from rlfactory.cli.app import dispatch
from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError
from rlfactory.model.wan_i2v import WanI2V
from rlfactory.prompts.ops.pictured import PicturedText
from rlfactory.utils.errors import ModelError

Make = Callable[..., WanI2V]
CPU = torch.device("cpu")


@pytest.fixture
def make(wan_i2v_folder: Path) -> Make:
    def build(**options: object) -> WanI2V:
        known = {"path": str(wan_i2v_folder), "size": 32, "frames": 5, "text_tokens": 16}
        return WanI2V(CPU, **({"guidance": 1.0} | known | options))

    return build


@torch.no_grad()
def test_the_picture_is_the_given_frame(make: Make) -> None:
    model = make()
    (prompt, other) = with_pictures(model, ["a", "a"])
    rows = model.encode([prompt]).tensors["picture"]
    assert rows.shape == (1, 2 + 4, 3, 8, 8)
    assert rows[0, :2, 0].eq(1).all()
    assert rows[0, :2, 1:].eq(0).all()
    assert isinstance(prompt, PicturedText)
    pixels = model.pipe.video_processor.preprocess(prompt.open(), height=32, width=32)
    alone = model._latents_of(pixels[:, None].expand(-1, 5, -1, -1, -1))
    torch.testing.assert_close(rows[:, 2:, 0], alone[:, :, 0], atol=1e-5, rtol=1e-5)
    x, t = torch.randn(1, *model.resolution.shape), torch.tensor([0.9])
    found = [model.predict(x, t, model.encode([text])) for text in (prompt, other)]
    assert (found[0] - found[1]).norm() > 1e-3 * found[0].norm()


@torch.no_grad()
def test_both_passes_of_guidance_see_the_picture(make: Make) -> None:
    model = make(guidance=3.0)
    (prompt,) = with_pictures(model, ["a"])
    assert isinstance(prompt, PicturedText)
    x, t = torch.randn(1, *model.resolution.shape), torch.tensor([0.3])
    positive, negative = (
        make().predict(x, t, make().encode([PicturedText(text, prompt.source)]))
        for text in ("a", "")
    )
    expected = negative + 3.0 * (positive - negative)
    torch.testing.assert_close(model.predict(x, t, model.encode([prompt])), expected)


def test_an_image_encoder_needs_512_tokens(wan21_i2v_folder: Path) -> None:
    with pytest.raises(ModelError, match="type model.text_tokens=512"):
        WanI2V(CPU, path=str(wan21_i2v_folder), size=32, frames=5, text_tokens=16)
    with pytest.raises(ModelError, match="has one"):
        WanI2V(CPU, path=str(wan21_i2v_folder), size=32, frames=5, trained="low")


WORDS = [
    *("model=wan_i2v", "model.size=32", "model.frames=9", "prompt_cache=null", "recipe=none"),
    *("model.text_tokens=16", "precision=fp32", "hardware=cpu", "schedule.steps=4", "algo=nft"),
    *("evaluation.steps=4", "prompts_per_iteration=2", "group_size=2", "updates_per_iteration=1"),
    *("micro_batch=4", "sample_batch=4", "evaluation.prompts=2", "evaluation.grid=2"),
    *("iterations=1", "optimizer.lr=0.01", "reward=compressibility"),
]


def test_an_evaluation_has_the_size_of_its_pictures(wan_i2v_folder: Path) -> None:
    with pytest.raises(PlanError, match="begin with a picture have model.size"):
        plan_from_words(*WORDS, f"model.path={wan_i2v_folder}", "evaluation.size=64")


def test_a_run_shows_its_videos_and_samples_from_a_picture(
    wan_i2v_folder: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    rl.train(*WORDS, f"model.path={wan_i2v_folder}", run_dir=run)
    with Image.open(run / "samples" / "eval_000001.gif") as shown:
        assert shown.n_frames == 9
    Image.new("RGB", (64, 64), "red").save(tmp_path / "red.png")
    given = ["sample", str(run), "--prompt", "it turns blue", "--steps", "2"]
    given += ["--image", str(tmp_path / "red.png"), "--out", str(tmp_path / "out")]
    assert dispatch(given) == 0
    with Image.open(tmp_path / "out" / "000.gif") as sample:
        assert (sample.n_frames, sample.size) == (9, (32, 32))
