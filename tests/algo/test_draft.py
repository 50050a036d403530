"""The gradient of a reward is that of finite differences, through real networks and decoders."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from rlfactory.algo.draft import Draft
from rlfactory.algo.ops.reward_gradient import RewardGradient, StateItems
from rlfactory.algo.refl import ReFL
from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError
from rlfactory.dynamics.ddim import DDIM
from rlfactory.dynamics.ode import ODE
from rlfactory.dynamics.schedule import uniform_sigmas
from rlfactory.model.sd import SD
from rlfactory.model.sd3 import SD3
from rlfactory.prompts.base import Prompt
from rlfactory.reward.jpeg_standin import JpegStandIn
from rlfactory.rollout import Rollout
from rlfactory.train.sampling.image_sampler import ImageSampler

SIGMAS = uniform_sigmas(4, 3.0)
PROMPTS = [Prompt("a red circle", {}), Prompt("a blue square", {})]
REWARD = JpegStandIn()
KINDS: dict[str, Any] = {"tiny_sd3": SD3, "tiny_sd": SD}


@cache
def model(name: str = "tiny_sd3", dtype: torch.dtype = torch.float32) -> Any:
    """A shipped model with adapters that do something."""
    made = KINDS[name](torch.device("cpu"), path=f"zoo:{name}", size=16, lora_rank=2, guidance=1.5)
    generator = torch.Generator().manual_seed(3)
    for parameter in made.weights.parameters.values():
        parameter.data += 0.05 * torch.randn(parameter.shape, generator=generator)
    for part in ("vae", made.part):
        getattr(made.pipe, part).to(dtype)
    return made


def stepping(name: str) -> Any:
    process = model(name).forward_process
    return ODE(process) if name == "tiny_sd3" else DDIM(process)


def draft(name: str = "tiny_sd3", **options: Any) -> Draft:
    return Draft(stepping(name), SIGMAS, REWARD, **options)


def drawn(algo: RewardGradient, policy: Any, iteration: int = 0) -> Rollout:
    sampler = ImageSampler(
        policy,
        dynamics=algo.dynamics,
        sigmas=SIGMAS,
        evaluation_sigmas=SIGMAS,
        transitions=None,
        batch=8,
        advance=lambda count: None,
        kept_step=algo.kept_step,
    )
    groups = torch.arange(2)
    return algo.compute_advantages(
        sampler.rollout(PROMPTS, groups, seed=0, iteration=iteration), "jpeg_standin"
    )


def items(algo: RewardGradient, policy: Any, iteration: int = 0) -> StateItems:
    rollout = drawn(algo, policy, iteration)
    return algo.training_items(rollout, policy, seed=0, iteration=iteration)


def gradients(algo: RewardGradient, policy: Any, made: StateItems) -> list[Tensor]:
    parameters = [*policy.weights.parameters.values()]
    (batch,) = made.split(8)
    loss = algo.loss(policy, batch).value
    return list(torch.autograd.grad(loss, parameters))


def in_float64(made: StateItems) -> StateItems:
    assert made.x is not None
    condition = {name: rows.double() for name, rows in made.condition.tensors.items()}
    return replace(
        made,
        x=made.x.double(),
        condition=replace(made.condition, tensors=condition),
        draws=None if made.draws is None else made.draws.double(),
    )


CASES: dict[str, Callable[[], RewardGradient]] = {
    "the last step": lambda: draft(),
    "all steps": lambda: draft(last_steps=None),
    "two steps, kept and not computed again": lambda: draft(last_steps=2, checkpoint=False),
    "noised again": lambda: draft(low_variance=2),
    "with noise in steps": lambda: draft("tiny_sd", last_steps=2),
    "refl": lambda: ReFL(stepping("tiny_sd3"), SIGMAS, REWARD, begin=0.5),
    "refl, vp": lambda: ReFL(stepping("tiny_sd"), SIGMAS, REWARD, margin=None, scale=2.0),
}


OFTEN = ("the last step", "with noise in steps", "refl", "refl, vp")
"""Cases of the fast suite; the rest take more steps."""


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=() if c in OFTEN else pytest.mark.slow) for c in CASES]
)
def test_finite_differences(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """d loss / d weights along a direction, in float64, to six digits."""
    algo = CASES[case]()
    name = "tiny_sd3" if isinstance(algo.dynamics, ODE) else "tiny_sd"
    policy = model(name, torch.float64)
    made = in_float64(items(algo, model(name)))
    # the same code in float64: what it computes in float32 is too coarse for differences
    monkeypatch.setattr(Tensor, "float", Tensor.double)
    to = Tensor.to
    in_double = {torch.float32: torch.float64}
    monkeypatch.setattr(
        Tensor, "to", lambda x, *a, **k: to(x, *(in_double.get(v, v) for v in a), **k)
    )
    parameters = [*policy.weights.parameters.values()]
    kept = [parameter.data for parameter in parameters]
    try:
        for parameter in parameters:
            parameter.data = parameter.data.double()
        found = gradients(algo, policy, made)
        generator = torch.Generator().manual_seed(0)
        along = [torch.randn(p.shape, generator=generator).double() for p in parameters]
        expected = sum(float((g * d).sum()) for g, d in zip(found, along, strict=True))
        (batch,) = made.split(8)
        values_at = []
        with torch.no_grad():
            for step in (1e-6, -2e-6, 3e-6, -4e-6):  # to +1, -1, +2 and -2 times 1e-6
                for parameter, direction in zip(parameters, along, strict=True):
                    parameter.data += step * direction
                values_at.append(float(algo.loss(policy, batch).value))
    finally:
        for parameter, value in zip(parameters, kept, strict=True):
            parameter.data = value
    assert abs(expected) > 1e-8
    near, far = ((values_at[i] - values_at[i + 1]) / (2e-6 * (1 + i // 2)) for i in (0, 2))
    assert (4 * near - far) / 3 == pytest.approx(expected, rel=1e-6)  # Richardson


@pytest.mark.parametrize("last", [1, 2, None])
@pytest.mark.parametrize("name", KINDS)
def test_the_steps_that_are_left_are_the_rollouts(name: str, last: int | None) -> None:
    policy, algo = model(name), draft(name, last_steps=last)
    rollout = drawn(algo, policy)
    (batch,) = items(algo, policy).split(8)
    _, latents = algo.finish(policy, batch)
    assert torch.equal(latents, rollout.latents)
    pixels = policy.decode_pixels(latents)
    assert torch.equal((255 * pixels).round().to(torch.uint8), rollout.images)
    scored = REWARD.score_pixels(pixels, [], [])
    assert algo.loss(policy, batch).metrics["loss/policy"].equal(-scored)


def test_computing_again_changes_nothing() -> None:
    policy = model()
    found = []
    for checkpoint in (True, False):
        algo = draft(last_steps=2, checkpoint=checkpoint)
        made = items(algo, policy)
        policy.evaluations.read_and_reset()
        found.append(gradients(algo, policy, made))
        # two samples, two steps, and guidance: passes that are made again don't count
        assert policy.evaluations.read_and_reset().trained == 2 * 2 * 2
    for kept, again in zip(*found, strict=True):
        torch.testing.assert_close(kept, again)


def test_truncation_leaves_out_a_part_of_the_gradient() -> None:
    policy = model()
    short, whole = (gradients(a, policy, items(a, policy)) for a in (draft(), draft(last_steps=4)))
    difference = sum(float((a - b).norm()) for a, b in zip(short, whole, strict=True))
    assert difference > 0.01 * sum(float(b.norm()) for b in whole)


def test_a_random_number_of_steps_is_that_of_the_iteration() -> None:
    algo = draft(last_steps=3, truncation="random")
    kept = [algo.kept_step(4, seed=5, iteration=i) for i in range(300)]
    assert kept == [algo.kept_step(4, seed=5, iteration=i) for i in range(300)]
    counts = Counter(kept)
    assert {*counts} == {1, 2, 3}
    assert min(counts.values()) > 70
    made = items(algo, model(), 7)  # of the run's seed, which is 0
    assert made.at == algo.kept_step(4, seed=0, iteration=7)
    assert torch.equal(made.t, SIGMAS[made.at].expand(2, 1))
    assert draft(last_steps=3).kept_step(4, seed=5, iteration=0) == 1
    assert draft(last_steps=None).kept_step(4, seed=5, iteration=0) == 0


def test_low_variance_noises_the_sample_again() -> None:
    policy, algo = model(), draft(low_variance=2)
    made, rollout = items(algo, policy), drawn(algo, policy)
    assert made.x is not None
    assert made.x.shape[:2] == made.t.shape == (2, 3)
    assert torch.equal(made.x[:, 0], rollout.state)
    alpha, sigma = 1 - SIGMAS[3], SIGMAS[3]
    noise = (made.x[:, 1:] - alpha * rollout.latents[:, None]) / sigma
    assert noise.std() == pytest.approx(1, abs=0.1)
    assert not torch.allclose(noise[:, 0], noise[:, 1])


def test_micro_batches_have_their_own_prompts() -> None:
    policy, algo = model(), draft(low_variance=1)
    made = items(algo, policy)
    parts = [*made.split(3)]
    assert [len(part) for part in parts] == [3, 1]
    first, second = (prompt.text for prompt in PROMPTS)
    assert [[*part.prompts] for part in parts] == [[first, first, second], [second]]
    (whole,) = made.split(4)
    weighted = sum(algo.loss(policy, part).value.item() * len(part) / 4 for part in parts)
    assert algo.loss(policy, whole).value.item() == pytest.approx(weighted, rel=1e-5)


WORDS = ("algo=draft", "reward=jpeg_standin", "model=tiny_sd3")


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["algo.last_steps=11"], "algo.last_steps"),
        (["algo.last_steps=2", "algo.low_variance=1"], "algo.low_variance"),
        (["algo.last_steps=null", "algo.low_variance=1"], "algo.low_variance"),
        (["epochs=2"], "epochs"),
    ],
)
def test_options_that_do_not_fit(words: list[str], key: str) -> None:
    with pytest.raises(PlanError) as caught:
        plan_from_words(*WORDS, *words)
    assert key in [problem.key for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("words", "passes"),
    [
        ([], "10 forward passes to sample an image, 1 to learn from it"),
        (["algo.last_steps=4"], "10 forward passes to sample an image, 4 to learn from it"),
        (["algo.last_steps=null"], "10 forward passes to sample an image, 10 to learn from it"),
        (["algo.last_steps=4", "algo.truncation=random"], "2.5 to learn from it"),
        (["algo.low_variance=2"], "3 to learn from it"),
        (["algo=refl", "regularizer=kl_v"], "1 to compare policies on it, 1 to learn from it"),
    ],
)
def test_the_plan_knows_the_passes(words: list[str], passes: str) -> None:
    assert passes in plan_from_words(*WORDS, *words).derived["passes"]
