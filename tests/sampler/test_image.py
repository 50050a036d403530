"""Pictures keyed by their number; stochastic steps only where they are trained."""

from collections.abc import Callable

import pytest
import torch

from rlfactory.dynamics.flow_sde import FlowSDE
from rlfactory.dynamics.schedule import uniform_sigmas
from rlfactory.dynamics.window import Fixed
from rlfactory.model.base import ImageModel
from rlfactory.nest import present
from rlfactory.prompts.base import Prompt
from rlfactory.sampler.image import ImageSampler, Kept

PROMPTS = [Prompt("one", {}), Prompt("another", {})]
GROUPS = torch.tensor([0, 0, 1, 1])


@pytest.fixture
def sampler(linear: Callable[..., ImageModel]) -> Callable[..., ImageSampler]:
    def make(steps: list[int] | None = None, batch: int = 100) -> ImageSampler:
        return ImageSampler(
            linear(),
            dynamics=FlowSDE(),
            sigmas=uniform_sigmas(6, 3.0),
            evaluation_sigmas=uniform_sigmas(9, 3.0),
            kept=Kept(Fixed(steps=steps)) if steps else None,
            batch=batch,
            advance=lambda count: None,
        )

    return make


def test_only_the_windows_transitions_are_kept(sampler: Callable[..., ImageSampler]) -> None:
    made = sampler([1, 4])
    kept = present(made.rollout(PROMPTS, GROUPS, seed=0, iteration=0).transitions, "transitions")
    assert kept.log_prob.shape == (4, 2)
    torch.testing.assert_close(kept.t[0], made.sigmas[[1, 4]])


def test_without_a_window_a_rollout_is_the_ode(sampler: Callable[..., ImageSampler]) -> None:
    made = sampler()
    assert made.rollout(PROMPTS, GROUPS, seed=0, iteration=0).transitions is None


def test_batching_changes_nothing(sampler: Callable[..., ImageSampler]) -> None:
    whole, parts = (
        sampler([0, 1], batch).rollout(PROMPTS, GROUPS, seed=0, iteration=3) for batch in (100, 3)
    )
    torch.testing.assert_close(whole.latents, parts.latents)
    assert whole.prompts == parts.prompts == ["one", "one", "another", "another"]


def test_evaluations_take_their_own_schedule(sampler: Callable[..., ImageSampler]) -> None:
    made = sampler()
    before = made.model.calls  # type: ignore[attr-defined]
    drawn = made.draw(["one"] * 5, seed=0, stream="evaluation")
    assert made.model.calls - before == 9  # type: ignore[attr-defined]
    assert drawn.images is not None
    again = made.draw(["one"] * 5, seed=0, stream="evaluation").images
    assert again is not None
    assert torch.equal(drawn.images, again)
    assert not torch.equal(drawn.images[0], drawn.images[1])
