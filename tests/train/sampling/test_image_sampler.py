"""Pictures keyed by their number; stochastic steps only where they are trained."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from rlfactory.dynamics.cps import CPS
from rlfactory.dynamics.dance_sde import DanceSDE
from rlfactory.dynamics.dpm_solver import DPMSolver
from rlfactory.dynamics.flow_sde import FlowSDE
from rlfactory.dynamics.ode import ODE
from rlfactory.dynamics.sa_solver import SASolver
from rlfactory.dynamics.schedule import uniform_sigmas
from rlfactory.dynamics.window import FixedSteps
from rlfactory.model.base import ImageModel
from rlfactory.prompts.base import Prompt
from rlfactory.rollout import Condition, Rollout
from rlfactory.train.sampling.base import computed_ahead
from rlfactory.train.sampling.image_sampler import ImageSampler
from rlfactory.train.sampling.trajectories import RolloutSpec
from rlfactory.utils import rng
from rlfactory.utils.pytree import require
from rlfactory.utils.sizes import sampling_passes

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
            transitions=RolloutSpec(FlowSDE(), window=FixedSteps(steps=steps)) if steps else None,
            batch=batch,
            advance=lambda count: None,
        )

    return make


def test_only_the_windows_transitions_are_kept(sampler: Callable[..., ImageSampler]) -> None:
    made = sampler([1, 4])
    kept = require(made.rollout(PROMPTS, GROUPS, seed=0, iteration=0).transitions, "transitions")
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


Make = Callable[..., ImageSampler]


@pytest.fixture
def drawing(linear: Callable[..., ImageModel]) -> Make:
    """As `sampler`, by any dynamics."""

    def make(dynamics: Any, kept: RolloutSpec | None = None, batch: int = 100) -> ImageSampler:
        model = linear()
        return ImageSampler(
            model,
            dynamics=dynamics(model.forward_process) if isinstance(dynamics, type) else dynamics,
            sigmas=uniform_sigmas(6, 3.0),
            evaluation_sigmas=uniform_sigmas(6, 3.0),
            transitions=kept,
            batch=batch,
            advance=lambda count: None,
        )

    return make


def roll(sampler: ImageSampler, groups: torch.Tensor = GROUPS, **key: int) -> Rollout:
    return sampler.rollout(PROMPTS, groups, **({"seed": 0, "iteration": 0} | key))


def starts_of(rollout: Rollout) -> torch.Tensor:
    """Where samples began whose first step is drawn."""
    return require(rollout.transitions, "transitions").x[:, 0]


@pytest.mark.parametrize("batch", [100, 3, 1])
def test_branches_begin_alike_whatever_the_batch(drawing: Make, batch: int) -> None:
    groups = torch.tensor([0] * 4 + [1] * 4)
    kept = RolloutSpec(FlowSDE(), window=FixedSteps(steps=[0, 2]), branches=2)
    found = roll(drawing(FlowSDE(), kept, batch), groups)
    begin = starts_of(found)
    assert torch.equal(begin[::2], begin[1::2])
    assert len(begin[::2].flatten().unique()) == begin[::2].numel(), "pairs begin elsewhere"
    assert found.comparison_group is None, "a group compares among itself"
    whole = roll(drawing(FlowSDE(), kept), groups)
    torch.testing.assert_close(found.latents, whole.latents)
    torch.testing.assert_close(found.transitions.log_prob, whole.transitions.log_prob)
    # steps are drawn for each sample apart
    assert not torch.isclose(found.latents[0], found.latents[1]).any()


@pytest.mark.parametrize("batch", [100, 5])
def test_branches_at_each_step_compare_among_themselves(drawing: Make, batch: int) -> None:
    groups = torch.tensor([0] * 8 + [1] * 8)
    kept = RolloutSpec(FlowSDE(), window=FixedSteps(steps=[1, 3]), branches=2, branch_at="step")
    found = roll(drawing(FlowSDE(), kept, batch), groups)
    transitions = require(found.transitions, "transitions")
    # two seeds a group, two steps each, two branches a step
    steps = drawing(FlowSDE()).sigmas[[1, 3]].tolist()
    assert transitions.t[:, 0].tolist() == [steps[0], steps[0], steps[1], steps[1]] * 4
    peers = require(found.comparison_group, "peers").tolist()
    assert peers == [0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 3, 3, 2, 2, 3, 3]
    assert torch.equal(transitions.x[::2], transitions.x[1::2])
    whole = roll(drawing(FlowSDE(), kept), groups)
    torch.testing.assert_close(found.latents, whole.latents)
    torch.testing.assert_close(transitions.next, whole.transitions.next)
    assert len(found.latents.flatten().unique()) == found.latents.numel()


def test_a_step_wise_rollout_keeps_means_and_stores_states_as_told(drawing: Make) -> None:
    window = FixedSteps(steps=[0, 1])
    plain = roll(drawing(FlowSDE(), RolloutSpec(FlowSDE(), window=window)))
    assert plain.transitions.mean is None
    asked = roll(
        drawing(FlowSDE(), RolloutSpec(FlowSDE(), window=window, mean=True, dtype=torch.bfloat16))
    )
    assert asked.transitions.mean.shape == asked.transitions.x.shape
    assert asked.transitions.x.dtype == torch.bfloat16
    short = drawing(FlowSDE(), RolloutSpec(FlowSDE(), window=window, tail=0.5))
    before = short.model.calls  # type: ignore[attr-defined]
    assert not torch.equal(roll(short).latents, plain.latents)
    assert short.model.calls - before == 2 + 2  # type: ignore[attr-defined]


STOCHASTIC = [
    FlowSDE(noise_level=0.7),
    DanceSDE(eta=0.3),
    CPS(noise_level=0.8, log_prob_of="quadratic"),
    partial(SASolver, tau=1.0, low=0.0, high=1.0),
]
STILL = [ODE, DPMSolver, partial(SASolver, tau=0.0)]


def made(drawing: Make, dynamics: Any, batch: int = 100) -> ImageSampler:
    if isinstance(dynamics, partial):
        dynamics = dynamics(drawing(ODE).model.forward_process)
    return drawing(dynamics, None, batch)


@pytest.mark.parametrize("dynamics", [*STOCHASTIC, *STILL])
def test_without_a_window_the_chosen_dynamics_take_every_step(dynamics: Any, drawing: Make) -> None:
    whole = made(drawing, dynamics)
    found = roll(whole)
    assert found.transitions is None
    assert found.comparison_group is None
    assert torch.isfinite(found.latents).all()
    assert whole.model.calls == 6  # type: ignore[attr-defined]
    # a sample's noise has its number, so neighbours and batches change nothing
    torch.testing.assert_close(roll(made(drawing, dynamics, 3)).latents, found.latents)
    assert torch.equal(roll(made(drawing, dynamics)).latents, found.latents)
    for other in ({"seed": 1}, {"iteration": 1}):
        assert not torch.isclose(
            roll(made(drawing, dynamics), **other).latents, found.latents
        ).any()


@pytest.mark.parametrize("dynamics", STOCHASTIC)
def test_stochastic_dynamics_are_stochastic_without_a_window_too(
    dynamics: Any, drawing: Make
) -> None:
    ode = roll(drawing(ODE)).latents
    found = roll(made(drawing, dynamics)).latents
    assert (found - ode).abs().mean() > 0.05
    mean_step = found[0] - ode[0], found[1] - ode[1]
    assert not torch.isclose(*mean_step).any(), "each sample's noise is its own"


@pytest.mark.parametrize("dynamics", STILL)
def test_solvers_come_near_the_ode(dynamics: Any, drawing: Make) -> None:
    ode = roll(drawing(ODE)).latents
    torch.testing.assert_close(roll(made(drawing, dynamics)).latents, ode, rtol=0.05, atol=0.05)


def test_a_rollout_and_an_evaluation_differ_by_the_dynamics_alone(drawing: Make) -> None:
    stochastic, still = (made(drawing, dynamics) for dynamics in (FlowSDE(), ODE))
    pictures = [
        s.draw(["one", "two"], seed=0, stream="evaluation").images for s in (stochastic, still)
    ]
    assert torch.equal(*pictures)


def test_a_solver_draws_from_a_generator_for_each_sample_and_iteration(
    drawing: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds: list[int] = []
    solve = SASolver.solve

    def listen(self: SASolver, predict: Any, x: Any, times: Any, generators: Any) -> torch.Tensor:
        seeds.extend(generator.initial_seed() for generator in generators)
        return solve(self, predict, x, times, generators)

    monkeypatch.setattr(SASolver, "solve", listen)
    for iteration in (0, 1):
        roll(made(drawing, STOCHASTIC[-1], batch=3), iteration=iteration)
    assert seeds == [rng.derive_seed(0, "solver", i, row) for i in (0, 1) for row in range(4)]


@pytest.mark.parametrize("at", ["window", "step"])
@pytest.mark.parametrize("batch", [1, 2, 3, 100])
def test_branches_pass_the_network_and_the_decoder_in_slices(
    at: Any, batch: int, drawing: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = RolloutSpec(FlowSDE(), window=FixedSteps(steps=[1, 3]), branches=4, branch_at=at)
    groups = torch.tensor([0] * 8 + [1] * 8)
    expected = roll(drawing(FlowSDE(), spec), groups)
    sampler, decoded, passed = drawing(FlowSDE(), spec, batch), list[int](), list[int]()
    decode, predict = sampler.model.decode, sampler.model.predict
    monkeypatch.setattr(sampler.model, "decode", lambda x: decoded.append(len(x)) or decode(x))
    monkeypatch.setattr(
        sampler.model, "predict", lambda x, *rest: passed.append(len(x)) or predict(x, *rest)
    )
    rollout = roll(sampler, groups)
    assert max(decoded) <= batch
    assert max(passed) <= batch
    torch.testing.assert_close(rollout.latents, expected.latents)
    found = require(rollout.transitions, "transitions")
    torch.testing.assert_close(found.log_prob, require(expected.transitions, "those").log_prob)
    drawn = {*require(found.pass_rows, "rows").flatten().tolist()}
    steps = {"branches": 4, "steps": 2, "branch_at": at}
    assert drawn == sampling_passes(16, batch, **steps)


def test_a_prompt_is_encoded_and_stored_once(
    sampler: Callable[..., ImageSampler], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = sampler([0, 1], 3)
    asked = list[str]()

    def encode(prompts: Any) -> Condition:
        asked.extend(prompts)
        return Condition({"length": torch.tensor([float(len(prompt)) for prompt in prompts])})

    monkeypatch.setattr(made.model, "encode", encode)
    condition = made.rollout(PROMPTS, GROUPS, seed=0, iteration=0).condition
    assert asked == ["one", "another"]
    assert condition.prompt is not None
    assert condition.tensors["length"].tolist() == [3.0, 7.0]
    assert condition.rows(torch.arange(4)).tensors["length"].tolist() == [3.0, 3.0, 7.0, 7.0]


def test_the_next_result_is_computed_while_one_is_used() -> None:
    begun: list[int] = []
    release = threading.Event()

    def call(number: int) -> int:
        begun.append(number)
        if number == 1:
            release.set()
        return number

    results = computed_ahead(partial(call, number) for number in range(3))
    assert next(results) == 0
    assert release.wait(10), "the second was not begun while the first is used"
    assert [*results] == [1, 2]
    assert begun == [0, 1, 2]
    assert [*computed_ahead(())] == []


def test_noise_drawn_ahead_is_the_same(
    sampler: Callable[..., ImageSampler], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = sampler([0, 1], 1).rollout(PROMPTS, GROUPS, seed=0, iteration=3)
    ahead = sampler([0, 1], 1)
    ahead._on_gpu = True  # noqa: SLF001
    empty = torch.empty
    # this machine may have no GPU to pin memory for
    monkeypatch.setattr(rng.torch, "empty", lambda *shape, pin_memory: empty(*shape))
    found = ahead.rollout(PROMPTS, GROUPS, seed=0, iteration=3)
    assert torch.equal(found.latents, expected.latents)


@pytest.mark.parametrize(("fraction", "own"), [(1.0, 6), (0.6, 4), (0.01, 1)])
@pytest.mark.parametrize("weights", ["policy", "ema"])
def test_the_last_steps_of_evaluations_may_be_those_of_the_reference(
    fraction: float, own: int, weights: str, drawing: Make
) -> None:
    made = drawing(ODE)
    made.policy_fraction, model = fraction, made.model
    model.weights.add("reference")
    with torch.no_grad():
        for parameter in model.weights.parameters.values():
            parameter += 0.5
    model.weights.add("ema")
    seen: list[float] = []
    predict = model.predict
    model.predict = lambda x, t, c: seen.append(_sum(model)) or predict(x, t, c)  # type: ignore[method-assign, func-returns-value]
    trained = _sum(model)
    with model.weights(weights):
        images = made.draw(["one"] * 3, seed=0, stream="evaluation").images
        assert _sum(model) == trained
    assert images is not None
    assert [value == trained for value in seen] == [True] * own + [False] * (6 - own)


def _sum(model: ImageModel) -> float:
    return sum(float(p.detach().sum()) for p in model.weights.parameters.values())


def test_trees_are_drawn_by_number_whatever_the_batch(drawing: Make) -> None:
    tree = RolloutSpec(
        FlowSDE(), window=FixedSteps(steps=[1, 3]), branches=4, branch_at="tree", splits=[0, 1]
    )
    groups = torch.arange(2).repeat_interleave(8)
    whole, parts = (
        drawing(FlowSDE(), tree, batch).rollout(PROMPTS, groups, seed=0, iteration=0)
        for batch in (100, 3)
    )
    found = require(whole.tree, "trees")
    assert found.step[0].tolist() == [0, 1, 3]
    first = [[0, 0, 0, 0], [0, 0, 1, 1], [0, 2, 2, 2], [0, 2, 3, 3]]
    assert found.node[:5].tolist() == [*first, [4] * 4]
    assert torch.equal(found.node, require(parts.tree, "trees").node)
    torch.testing.assert_close(whole.latents, parts.latents)
    # a rank draws the trees of its own groups
    half = drawing(FlowSDE(), tree).batches(
        PROMPTS, groups, seed=0, iteration=0, rows=torch.arange(8, 16)
    )
    (second,) = half
    assert torch.equal(require(second.tree, "trees").node, found.node[8:])
    torch.testing.assert_close(second.latents, require(whole.latents, "latents")[8:])
