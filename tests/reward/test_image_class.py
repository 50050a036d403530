"""The class of a prompt by an image classifier, on the judges of digits that ship."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm
from torch import Tensor

from rlfactory.model.pipelines.shipped import zoo_path
from rlfactory.prompts.base import Prompt
from rlfactory.reward.base import RewardError, Samples, check_scores
from rlfactory.reward.image_class import ImageClass, frechet_distance

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def digits(recipes: Callable[[str], ModuleType]) -> ModuleType:
    return recipes("digits")


def asked(images: Tensor, names: list[str]) -> Samples:
    return Samples([f"a {n}" for n in names], [{}] * len(names), torch.arange(len(names)), images)


@pytest.mark.parametrize(("judge", "right"), [("proxy", 0.904), ("gold", 0.997)])
def test_judges_read_held_out_scans_as_their_cards_say(
    digits: ModuleType, judge: str, right: float
) -> None:
    """Golden: `zoo:digits_*`'s README.md, which `scripts/zoo/digits.py` wrote by its own forward
    pass.
    """
    reward = ImageClass(CPU, path=f"zoo:digits_{judge}", name=judge)
    images, numbers = digits.part(2)
    scores = reward.score(asked(images, [digits.WORDS[i] for i in numbers]))
    check_scores(reward, scores, 397)
    top1 = float(scores[f"{judge}_top1"].mean())
    assert top1 == pytest.approx(right, abs=0.003)
    assert f"- held-out scans: {top1:.3f}" in (zoo_path(f"digits_{judge}") / "README.md").read_text(
        "utf-8"
    )


def test_a_probability_and_its_log_odds_are_those_of_the_softmax(digits: ModuleType) -> None:
    images = digits.part(2)[0][:10]
    prob, odds = (
        ImageClass(CPU, path="zoo:digits_proxy", output=output, batch_size=4)
        for output in ("prob", "log_odds")
    )
    each = [prob.score(asked(images, [word] * 10))["image_class"] for word in digits.WORDS]
    torch.testing.assert_close(torch.stack(each).sum(0), torch.ones(10))
    p = torch.stack(each, 1).double()
    with torch.inference_mode():
        softmax = prob._logits(images).double().softmax(1)
    torch.testing.assert_close(p, softmax, atol=1e-6, rtol=1e-4)
    found = odds.score(asked(images, ["seven"] * 10))["image_class"].double()
    torch.testing.assert_close(found, softmax[:, 7].logit(), atol=1e-4, rtol=1e-4)


def test_the_longest_name_in_a_prompt_counts(digits: ModuleType) -> None:
    reward = ImageClass(CPU, path="zoo:digits_proxy")
    reward.classes = {"tern": 0, "arctic tern": 1, "one": 2}
    assert reward.class_of("An Arctic tern on a stone") == 1
    assert reward.class_of("a tern.") == 0
    with pytest.raises(RewardError, match="'a stone' names no class of image_class's: tern, "):
        reward.check_prompts([Prompt("a tern", {}), Prompt("a stone", {})])


def test_a_frechet_distance_has_its_closed_form() -> None:
    """Golden: of N(0, 1) and N(3, 4) (3 - 0)^2 + (2 - 1)^2 = 10, twice in the plane; scipy's
    `sqrtm` in five dimensions.
    """
    line = torch.linspace(-1, 1, 21).double()
    plane = torch.cartesian_prod(line, line)
    unit = plane / plane.std(0)
    assert frechet_distance(unit, 2 * unit + 3).item() == pytest.approx(20)
    a, b = np.random.default_rng(0).normal(size=(2, 40, 5)) * np.arange(1, 6)
    s, t = np.cov(a.T), np.cov(b.T)
    expected = ((a.mean(0) - b.mean(0)) ** 2).sum() + np.trace(s + t - 2 * sqrtm(s @ t).real)
    assert frechet_distance(*map(torch.from_numpy, (a, b))).item() == pytest.approx(expected)
    assert frechet_distance(unit, unit).item() == pytest.approx(0, abs=1e-9)
    assert frechet_distance(unit[:1], unit).isnan()


def test_the_distance_to_real_pictures_is_reported_for_all(digits: ModuleType) -> None:
    reward = ImageClass(CPU, path="zoo:digits_gold", name="gold", real="held_out.safetensors")
    assert reward.better["gold_frechet"] == "lower"
    (real, _), (other, _) = digits.part(2), digits.part(0)
    found = [
        reward.score(asked(images, ["one"] * len(images)))["gold_frechet"]
        for images in (real, other, 255 - other)
    ]
    assert found[0].shape == (397,)
    assert found[0].unique().item() == pytest.approx(0, abs=1e-3)
    assert found[0][0] < found[1][0] < found[2][0]


def test_faults_of_paths_name_their_key(tmp_path: Path) -> None:
    with pytest.raises(RewardError, match="reward.path="):
        ImageClass(CPU, path=str(tmp_path))
    with pytest.raises(RewardError, match=r"reward.real=nothing.safetensors"):
        ImageClass(CPU, path="zoo:digits_gold", real="nothing.safetensors")
