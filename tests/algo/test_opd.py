"""On-policy distillation of images: the published loss, teachers from files, the plan."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rlfactory.algo.opd import OPD
from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError
from rlfactory.dynamics.base import gaussian_kl
from rlfactory.dynamics.flow_sde import FlowSDE
from rlfactory.model.base import ImageModel
from rlfactory.model.sd3 import SD3
from rlfactory.rollout import Rollout
from rlfactory.utils.errors import ModelError

Make = Callable[..., ImageModel]
Roll = Callable[..., Rollout]
DIGITS = "algo.teachers=[zoo:tiny_digits]"


def algorithm(*teachers: Any, **options: Any) -> OPD:
    algo = OPD(FlowSDE(noise_level=0.7), teachers=[""] * len(teachers), **options)
    algo.teachers = list(teachers)
    return algo


def batches(algo: OPD, model: ImageModel, roll: Roll, size: int = 100) -> list[Any]:
    rollout = replace(roll(model, [0.0] * 4), groups=torch.tensor([0, 0, 1, 1]))
    rollout = algo.compute_advantages(rollout, "main")
    return [*algo.training_items(rollout, model, seed=0, iteration=0).split(size)]


@pytest.mark.parametrize("divergence", ["kl", "velocity"])
def test_the_loss_is_the_published_codes(linear: Make, roll: Roll, divergence: Any) -> None:
    """verl-omni's distill_kl and distill_fm_mse (diffusion_algos.py)."""
    model, teacher = linear(), linear(0.8, 0.2)
    algo = algorithm(teacher, divergence=divergence)
    (batch,) = batches(algo, model, roll)
    loss, taken = algo.loss(model, batch), batch.require_replayed()
    mine, theirs = (m.predict(batch.x, batch.t, batch.condition) for m in (model, teacher))
    expected = ((mine - theirs) ** 2).mean()
    if divergence == "kl":
        steps = [
            algo.dynamics.step(batch.x, v, batch.t, taken.t_next, next=taken.next)
            for v in (mine, theirs)
        ]
        gap = ((steps[0].mean - steps[1].mean) ** 2).mean(dim=(1, 2, 3), keepdim=True)
        expected = (gap / (2 * steps[0].std ** 2)).mean()
    torch.testing.assert_close(loss.value, expected)
    assert loss.metrics["kl/teacher"].mean() == pytest.approx(expected.item(), rel=1e-5)


def test_the_golden_divergence_of_a_step(linear: Make, roll: Roll) -> None:
    """Provenance: Flow-GRPO's SDE by hand, at t = 0.5 to 0.4 with a = 0.7.

    std^2 = a^2 t / (1 - t) dt = 0.049; mu moves with v by -dt (1 + a^2 / (2 (1 - t)) (1 - t)), that
    is -0.1 (1 + 0.245) = -0.1245 (std_t^2 / (2 t) (1 - t) = 0.245); for velocities 0.2 apart the
    divergence is (0.0249)^2 / 0.098 = 0.006327.
    """
    x, t = torch.zeros(1, 1, 2, 2), torch.tensor([0.5])
    steps = [
        FlowSDE(noise_level=0.7).step(x, torch.full_like(x, v), t, torch.tensor([0.4]), next=x)
        for v in (0.3, 0.5)
    ]
    found = gaussian_kl(steps[0].mean, steps[1].mean, steps[0].std)
    assert found.item() == pytest.approx(0.0249**2 / 0.098, rel=1e-4)


def test_a_teacher_like_the_student_teaches_nothing(linear: Make, roll: Roll) -> None:
    model = linear()
    algo = algorithm(linear())
    (batch,) = batches(algo, model, roll)
    loss = algo.loss(model, batch).value
    slopes = torch.autograd.grad(loss, [*model.weights.parameters.values()])
    assert loss == 0
    assert not any(slope.any() for slope in slopes)


def test_steps_lead_to_the_teacher(linear: Make, roll: Roll) -> None:
    model, algo = linear(), algorithm(linear(0.8, 0.2))
    (batch,) = batches(algo, model, roll)
    optimizer = torch.optim.Adam(model.weights.parameters.values(), lr=0.05)
    for _ in range(100):
        optimizer.zero_grad()
        algo.loss(model, batch).value.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    found = [value.item() for value in model.weights.parameters.values()]
    assert found == pytest.approx([0.8, 0.2], abs=0.02)


def test_each_of_two_teachers_has_its_groups(linear: Make, roll: Roll) -> None:
    model, teachers = linear(), (linear(0.8, 0.2), linear(-0.5, 0.1))
    algo = algorithm(*teachers)
    first, second = batches(algo, model, roll)
    assert (first.teacher, second.teacher) == (0, 1)
    for batch, teacher in ((first, teachers[0]), (second, teachers[1])):
        alone = replace(batch, teacher=0)
        assert algo.loss(model, batch).value == algorithm(teacher).loss(model, alone).value


@pytest.fixture
def student(sd3_folder: Path) -> SD3:
    return SD3(torch.device("cpu"), path=str(sd3_folder), size=32, finetune="lora", lora_rank=2)


def nudge(model: SD3) -> None:
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.weights.parameters.values():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))


def predicted(model: ImageModel) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, *model.resolution.shape, generator=generator)
    with torch.no_grad():
        return model.predict(x, torch.tensor([0.7, 0.2]), model.encode(["a", "b"]))


def test_a_pipeline_and_its_adapters_are_teachers(
    student: SD3, sd3_folder: Path, tmp_path: Path
) -> None:
    base = predicted(student)
    nudge(student)
    student.export(tmp_path)
    moved = predicted(student)
    teachers = student.frozen(str(sd3_folder)), student.frozen(str(tmp_path))
    torch.testing.assert_close(predicted(teachers[0]), base, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(predicted(teachers[1]), moved, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(base, moved, atol=1e-3)
    assert not any(p.requires_grad for p in teachers[1].network.parameters())
    assert torch.equal(predicted(student), moved)
    assert teachers[0].evaluations is student.evaluations


def test_teachers_that_do_not_fit(student: SD3, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="StableDiffusion3Pipeline"):
        student.frozen("zoo:tiny_flux")
    with pytest.raises(ModelError, match="channels"):
        student.frozen("zoo:tiny_words")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "teachers: is empty"),
        (["algo.teachers=[zoo:tiny_flux]"], "which is a FluxPipeline"),
        (["algo.teachers=[./nowhere]"], "no such folder"),
    ],
)
def test_bad_plans(words: list[str], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        plan_from_words("algo=opd", *words)


def test_the_plan_counts_the_teachers_passes_and_memory() -> None:
    assert "3 to compare policies" in plan_from_words("algo=opd", DIGITS).table()
    two = "algo.teachers=[zoo:tiny_digits,zoo:tiny_digits]"
    assert "3 to compare policies" in plan_from_words("algo=opd", two).table()
