"""Images of the data as samples: their pixels and latents, whatever the batches."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from rlfactory.algo.diffusion_dpo import OfflineDiffusionDPO
from rlfactory.algo.times import UniformTimes
from rlfactory.dynamics.ode import ODE
from rlfactory.dynamics.schedule import uniform_sigmas
from rlfactory.model.sd3 import SD3
from rlfactory.prompts.base import Prompt, PromptError
from rlfactory.prompts.file import read_prompts
from rlfactory.train.sampling.given import GivenImageSampler
from rlfactory.utils.pytree import require

FOLDER = Path(__file__).parents[2] / "data"
PROMPTS = read_prompts(FOLDER / "image_pairs.jsonl")[:2]
GROUPS = torch.tensor([0, 0, 1, 1])
SIGMAS = uniform_sigmas(2, 3.0)
ALGO = OfflineDiffusionDPO(UniformTimes(count=2), SIGMAS)


@pytest.fixture(scope="module")
def model() -> SD3:
    return SD3(torch.device("cpu"), path="zoo:tiny_sd3", size=64, text_tokens=16)


def sampler(model: SD3, batch: int = 100) -> GivenImageSampler:
    return GivenImageSampler(
        model,
        completion=ALGO.completion,
        folder=FOLDER,
        size=(64, 64),
        dynamics=ODE(model.forward_process),
        sigmas=SIGMAS,
        evaluation_sigmas=SIGMAS,
        transitions=None,
        batch=batch,
        advance=lambda count: None,
    )


def pixels(name: str) -> torch.Tensor:
    image = Image.open(FOLDER / "images" / name).convert("RGB")
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def test_a_pair_has_the_pictures_of_its_row(model: SD3) -> None:
    rollout = sampler(model).rollout(PROMPTS, GROUPS, seed=0, iteration=0)
    images = require(rollout.images, "images")
    for row, name in enumerate(["circle.png", "square.png"] * 2):
        assert torch.equal(images[row], pixels(name))
    assert rollout.prompts == [PROMPTS[0].text] * 2 + [PROMPTS[1].text] * 2
    found = ALGO.compute_advantages(rollout, "shapes")
    assert require(found.advantage, "advantages").tolist() == [1, -1, 1, -1]


def test_latents_decode_to_the_pictures(model: SD3) -> None:
    rollout = sampler(model).rollout(PROMPTS, GROUPS, seed=0, iteration=0)
    decoded = model.decode(require(rollout.latents, "latents"))
    error = (decoded.float() - require(rollout.images, "images").float()).abs().mean()
    assert error < 6  # of 255; two other pictures differ by ten times as much
    assert (decoded[:1].float() - pixels("square.png").float()).abs().mean() > 3 * error


@pytest.mark.parametrize("batch", [1, 3])
def test_batching_changes_nothing(model: SD3, batch: int) -> None:
    one = sampler(model).rollout(PROMPTS, GROUPS, seed=0, iteration=0)
    other = sampler(model, batch).rollout(PROMPTS, GROUPS, seed=5, iteration=3)
    torch.testing.assert_close(one.latents, other.latents)
    assert torch.equal(require(one.images, "images"), require(other.images, "images"))


def test_a_rank_takes_its_own_rows(model: SD3) -> None:
    (part,) = sampler(model).batches(
        PROMPTS, GROUPS, seed=0, iteration=0, rows=torch.tensor([1, 2])
    )
    assert part.index.tolist() == [1, 2]
    assert torch.equal(require(part.images, "images")[0], pixels("square.png"))
    assert torch.equal(require(part.images, "images")[1], pixels("circle.png"))


def test_the_policy_draws_evaluations(model: SD3) -> None:
    given = sampler(model)
    drawn = require(given.draw(["a red circle"], seed=0, stream="evaluation").images, "images")
    assert not torch.equal(drawn[0], pixels("circle.png"))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rejected": None}, "no image under 'rejected'; its columns are"),
        ({"rejected": "images/circle.png"}, "are equal, 'images/circle.png'; a pair must differ"),
        ({"rejected": "images/none.png"}, "there is no picture .*none.png"),
        ({"rejected": "image_pairs.jsonl"}, "can't be read as a picture"),
        ({"rejected": Image.new("RGB", (64, 32))}, "another aspect ratio"),
    ],
)
def test_all_rows_are_checked_before_a_run(
    model: SD3, changed: dict[str, object], message: str
) -> None:
    good = PROMPTS[0]
    wrong = replace(good, metadata={**good.metadata, **changed})
    sampler(model).check_rows([good])
    with pytest.raises(PromptError, match=message):
        sampler(model).check_rows([good, wrong])


def test_pictures_may_be_images_and_are_resized(model: SD3) -> None:
    pair = {"chosen": Image.new("RGB", (128, 128), "red"), "rejected": Image.new("RGB", (64, 64))}
    rollout = sampler(model).rollout([Prompt("red", pair)], GROUPS[:2], seed=0, iteration=0)
    images = require(rollout.images, "images")
    assert images.shape == (2, 3, 64, 64)
    assert images[0].float().mean((1, 2)).tolist() == [255, 0, 0]
