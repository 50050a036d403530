"""Diffusion-DPO: the published formula, pairs with common noise and times, the reference."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rlfactory.algo.diffusion_dpo import DiffusionDPO, OfflineDiffusionDPO
from rlfactory.algo.times import UniformTimes
from rlfactory.batch import TrainingItems
from rlfactory.cli import app
from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError
from rlfactory.dynamics.schedule import uniform_sigmas
from rlfactory.model.base import ImageModel
from rlfactory.model.weight_sets import REFERENCE
from rlfactory.rollout import Rollout
from rlfactory.utils.pytree import require

SIGMAS = uniform_sigmas(6, 3.0)
Make = Callable[..., ImageModel]
Roll = Callable[..., Rollout]


def algorithm(**options: float) -> DiffusionDPO:
    return DiffusionDPO(UniformTimes(count=3), SIGMAS, **options)  # type: ignore[arg-type]


def items(algo: DiffusionDPO, model: ImageModel, roll: Roll) -> TrainingItems:
    """Two groups of three; the second and the third, then the first and the last are pairs."""
    rollout = replace(
        roll(model, [0.0] * 6),
        groups=torch.tensor([0, 0, 0, 1, 1, 1]),
        rewards={"main": torch.tensor([0.1, 0.9, -1.0, 3.0, 2.5, 2.0])},
    )
    chosen = algo.normalise_update(algo.compute_advantages(rollout, "main"))
    assert chosen.index.tolist() == [1, 2, 3, 5]
    return algo.training_items(chosen, model, seed=0, iteration=0)


@pytest.fixture(params=["velocity", "noise"])
def model(request: pytest.FixtureRequest, linear: Make, noisy: Make) -> ImageModel:
    made = linear() if request.param == "velocity" else noisy()
    made.weights.add(REFERENCE)
    return made


def moved(model: ImageModel) -> None:
    with torch.no_grad():
        for parameter in model.weights.parameters.values():
            parameter.add_(0.05)


def test_a_pair_has_the_same_noise_and_time(model: ImageModel, roll: Roll) -> None:
    made = items(algorithm(), model, roll)
    (batch,) = made.split(100)
    assert len(batch) == 2 * 2 * 3
    eps, t = batch.require_eps(), batch.t
    assert torch.equal(eps[::2], eps[1::2])
    assert torch.equal(t[::2], t[1::2])
    assert len({round(x, 6) for x in t.tolist()}) == 6
    assert not torch.equal(batch.x0[::2], batch.x0[1::2])
    assert (batch.advantage[::2] == 1).all()
    assert (batch.advantage[1::2] == -1).all()


def test_the_first_loss_is_log_2(model: ImageModel, roll: Roll) -> None:
    algo = algorithm()
    (batch,) = items(algo, model, roll).split(100)
    loss = algo.loss(model, batch)
    assert loss.value.item() == pytest.approx(math.log(2), abs=1e-12)
    assert not loss.metrics["preference/margin"].any()


def test_the_loss_is_the_published_codes(model: ImageModel, roll: Roll) -> None:
    """The lines of SalesforceAIResearch/DiffusionDPO, train.py: errors are means, -0.5 beta."""
    algo = algorithm(beta=40.0)
    (batch,) = items(algo, model, roll).split(100)
    with torch.no_grad():
        reference = model.predict(batch.x, batch.t, batch.condition)
    moved(model)
    prediction = model.predict(batch.x, batch.t, batch.condition)
    target = model.forward_process.target(batch.x0, batch.require_eps(), batch.t)

    def difference(found: torch.Tensor) -> torch.Tensor:
        losses = (found - target).pow(2).mean(dim=[1, 2, 3])
        return losses[::2] - losses[1::2]

    inside = -0.5 * 40.0 * (difference(prediction) - difference(reference))
    expected = -torch.nn.functional.logsigmoid(inside).mean()
    found = algo.loss(model, batch)
    assert abs(float(inside.max())) > 1e-3
    assert found.value.item() == pytest.approx(expected.item(), rel=1e-4)
    assert torch.equal(found.outputs.by_weight_set[REFERENCE], reference)


def test_a_step_lowers_the_loss_and_leaves_the_reference(model: ImageModel, roll: Roll) -> None:
    algo = algorithm(beta=5.0)
    (batch,) = items(algo, model, roll).split(100)
    kept = {k: v.clone() for k, v in model.weights.state_dict().items() if k.startswith(REFERENCE)}
    parameters = [*model.weights.parameters.values()]
    algo.loss(model, batch).value.backward()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        for parameter in parameters:
            parameter.sub_(0.01 * require(parameter.grad, "a gradient"))
    assert algo.loss(model, batch).value.item() < math.log(2)
    for name, tensor in model.weights.state_dict().items():
        assert name not in kept or torch.equal(tensor, kept[name])


@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_micro_batches_are_whole_pairs_and_add_up(model: ImageModel, roll: Roll, size: int) -> None:
    algo = algorithm(beta=40.0)
    made = items(algo, model, roll)
    moved(model)
    (whole,) = made.split(100)
    total = sum(
        algo.loss(model, part).value.item() * part.weight / made.weight for part in made.split(size)
    )
    assert total == pytest.approx(algo.loss(model, whole).value.item(), rel=1e-6)


def test_the_padding_of_a_process_is_a_pair(model: ImageModel, roll: Roll) -> None:
    algo = algorithm()
    rollout = roll(model, [0.0])
    made = algo.training_items(rollout, model, seed=0, iteration=0)
    assert algo.loss(model, next(made.split(100))).value.isfinite()


IMAGE_PAIRS = Path(__file__).parents[1] / "data" / "image_pairs.jsonl"
SQUARE = "model.size=[624,624]"
OFFLINE = ["algo=diffusion_dpo_offline", "prompts=file", f"prompts.path={IMAGE_PAIRS}"]


def test_on_data_the_items_are_those_of_scored_samples(model: ImageModel, roll: Roll) -> None:
    """Of groups of two whose first sample has the higher score."""
    rollout = replace(
        roll(model, [0.0] * 4),
        groups=torch.tensor([0, 0, 1, 1]),
        rewards={"main": torch.tensor([1.0, 0.0, 1.0, 0.0])},
    )
    online = algorithm()
    offline = OfflineDiffusionDPO(UniformTimes(count=3), SIGMAS)
    (one,), (other,) = (
        algo.training_items(
            algo.normalise_update(algo.compute_advantages(rollout, "main")),
            model,
            seed=0,
            iteration=0,
        ).split(100)
        for algo in (online, offline)
    )
    assert torch.equal(one.x0, other.x0)
    assert torch.equal(one.require_eps(), other.require_eps())
    assert torch.equal(one.advantage, other.advantage)
    assert offline.reward_names("main") == []


@pytest.mark.parametrize(
    ("words", "key", "message", "fix"),
    [
        (["algo.chosen=choosen"], "algo.chosen", "no such column", "algo.chosen=chosen"),
        (["algo.rejected=chosen"], "algo.rejected", "equal to chosen; a pair must differ", ""),
        (["group_size=4"], "group_size", "chosen and rejected; allowed is 2", "group_size=2"),
        (["regularizer=kl_v"], "regularizer", "and these are data", "regularizer=none"),
        (["model=wan"], "algo", "this model makes videos", "algo=diffusion_dpo"),
        (["model=sd35", "model.size=[512,768]"], "algo.chosen", "another aspect ratio", SQUARE),
    ],
)
def test_the_plan_names_what_does_not_fit_of_the_data(
    words: list[str], key: str, message: str, fix: str
) -> None:
    with pytest.raises(PlanError) as found:
        plan_from_words(*OFFLINE, *words)
    problem = next(p for p in found.value.problems if p.key == key)
    assert message in problem.message
    assert problem.fix == fix


def test_without_pairs_the_online_form_is_suggested() -> None:
    with pytest.raises(PlanError, match="no such column") as found:
        plan_from_words(OFFLINE[0])
    assert {problem.fix for problem in found.value.problems} == {"algo=diffusion_dpo"}


def test_a_picture_that_is_not_there_is_named(tmp_path: Path) -> None:
    row = {"prompt": "a circle", "chosen": "1.png", "rejected": "2.png"}
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps(row))
    with pytest.raises(PlanError, match="chosen, and .*mine.jsonl:1: there is no picture .*1.png"):
        plan_from_words(*OFFLINE[:2], f"prompts.path={path}", "reward=compressibility")


def test_sampling_takes_no_pass_of_the_network() -> None:
    assert "0 forward passes to sample an image, 4 to compare" in plan_from_words(*OFFLINE).table()


@pytest.mark.slow
def test_a_model_learns_to_tell_the_pairs_apart(tmp_path: Path) -> None:
    small = ["model=tiny_sd3", "iterations=6", "prompts_per_iteration=4", "evaluation.every=0"]
    rest = [
        "updates_per_iteration=1",
        "optimizer.lr=1e-3",
        "schedule.steps=4",
        "evaluation.prompts=4",
        "hardware=cpu",
    ]
    assert app.dispatch([*OFFLINE, *small, *rest, f"run_dir={tmp_path / 'run'}"]) == 0
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    learned = [line for line in lines if "preference/accuracy" in line]
    assert learned[-1]["preference/accuracy"] > 0.9
    assert learned[0]["loss/policy"] == pytest.approx(math.log(2), abs=1e-6)
    assert learned[-1]["loss/policy"] < 0.3
