import pytest
import torch
from torch import Tensor

from rlfactory.algo.times import (
    DiscreteTimes,
    LogitNormalTimes,
    RolloutTimes,
    Times,
    UniformTimes,
    logit_normal,
    stratified,
    uniform_draws,
)
from rlfactory.dynamics.schedule import diffusers_sigmas, dynamic_shift, shifted, uniform_sigmas
from rlfactory.utils import rng
from rlfactory.utils.errors import ModelError

SIGMAS = uniform_sigmas(14, 3.0)
INDEX = torch.arange(400)


def draws(count: int, rows: int = 400, seed: int = 0) -> Tensor:
    return rng.uniform(seed, "times", [0], range(rows), [count])


def placed(*values: float) -> Tensor:
    """One sample's draws."""
    return torch.tensor([values])


def steps_of(times: Tensor, sigmas: Tensor = SIGMAS) -> Tensor:
    """Which of the schedule's steps each time is."""
    same = times[..., None] == sigmas[:-1]
    assert same.any(-1).all()
    return same.int().argmax(-1)


def test_one_time_falls_into_each_bin() -> None:
    uniform = rng.uniform(0, "times", [0], range(50), [4])
    times = stratified(uniform)
    assert times.shape == uniform.shape
    assert torch.equal((times * 4).floor(), torch.arange(4.0).expand(50, 4))
    assert times.min() >= 0
    assert times.max() < 1


def test_bins_are_filled_evenly() -> None:
    times = stratified(rng.uniform(0, "times", [0], range(2000), [4]))
    within = times * 4 - torch.arange(4)
    assert abs(within.mean() - 0.5) < 0.01
    assert abs(times.mean() - 0.5) < 0.01


def test_by_hand() -> None:
    times = stratified(torch.tensor([[0.0, 0.5], [0.5, 0.0]]))
    assert times.tolist() == [[0.0, 0.75], [0.25, 0.5]]


ALL: list[Times] = [
    UniformTimes(),
    UniformTimes(count=3, stratified=False, low=0.2, high=0.9, shift=3.0),
    UniformTimes(count=3, low=0.2, toward="clean", shift=3.0),
    LogitNormalTimes(),
    LogitNormalTimes(count=5, stratified=False, low=0.1, toward="clean"),
    DiscreteTimes(),
    DiscreteTimes(count=6, space="sigma", first="never"),
    DiscreteTimes(count=1, first="always"),
    DiscreteTimes(count=5, fraction=0.5, first="always"),
    RolloutTimes(count=13),
]


def name(times: Times) -> str:
    return f"{type(times).__name__}{vars(times)}"


@pytest.mark.parametrize("times", ALL, ids=name)
def test_times_lie_between_noise_and_the_clean_sample(times: Times) -> None:
    times.require_steps(SIGMAS)
    found = times.draw(draws(times.count), SIGMAS)
    assert found.shape == (400, times.count)
    assert found.min() > 0
    assert found.max() <= 1


@pytest.mark.parametrize("times", ALL, ids=name)
def test_times_are_a_function_of_a_samples_own_draws(times: Times) -> None:
    uniform = draws(times.count)
    found = times.draw(uniform, SIGMAS)
    assert torch.equal(times.draw(uniform[17:20], SIGMAS), found[17:20])


def test_draws_are_keyed_by_what_shares_them() -> None:
    """A sample's own, its group's, or everybody's; a function of their numbers alone."""
    index, groups = torch.tensor([0, 9, 4]), torch.tensor([0, 1, 0])
    keys = {"sample": [0, 9, 4], "group": [0, 1, 0], "batch": [0, 0, 0]}
    for shared, rows in keys.items():
        found = uniform_draws(UniformTimes(shared=shared), index, groups, seed=3, iteration=5)
        assert torch.equal(found, rng.uniform(3, "times", [5], rows, [4]))


@pytest.mark.parametrize(("shared", "kinds"), [("sample", 400), ("group", 50), ("batch", 1)])
def test_draws_are_shared(shared: str, kinds: int) -> None:
    times = UniformTimes(shared=shared)
    groups = INDEX // 8
    found = uniform_draws(times, INDEX, groups, seed=0, iteration=2)
    assert len(found.unique(dim=0)) == kinds
    if shared != "sample":
        assert torch.equal(found[groups == 3], found[24:25].expand(8, -1))
    other = uniform_draws(times, INDEX, groups, seed=0, iteration=3)
    assert not torch.equal(found, other)
    some = torch.tensor([30, 7])
    part = uniform_draws(times, some, groups[some], seed=0, iteration=2)
    assert torch.equal(part, found[some])


# Provenance: diffusion.md 1.14, shift 3 at u = .1, .5, .9: AWM's sampler, and Flow-Factory's since
# its pull request 113.
GOLDEN_ORIENTATION = {
    "noisy": [0.454392, 0.75, 0.915302],
    "clean": [0.545608, 0.25, 0.084698],
}


@pytest.mark.parametrize("toward", GOLDEN_ORIENTATION)
def test_golden_orientation_of_the_shift(toward: str) -> None:
    times = LogitNormalTimes(count=3, stratified=False, toward=toward)
    (found,) = times.draw(placed(0.1, 0.5, 0.9), SIGMAS).tolist()
    assert found == pytest.approx(GOLDEN_ORIENTATION[toward], abs=2e-6)


@pytest.mark.parametrize("kind", [UniformTimes, LogitNormalTimes])
def test_without_a_shift_orientations_are_mirrored(
    kind: type[UniformTimes] | type[LogitNormalTimes],
) -> None:
    uniform = draws(4)
    noisy = kind(shift=1.0).draw(uniform, SIGMAS)
    clean = kind(shift=1.0, toward="clean").draw(uniform, SIGMAS)
    torch.testing.assert_close(noisy + clean, torch.ones(400, 4))


@pytest.mark.parametrize("kind", [UniformTimes, LogitNormalTimes])
def test_a_shift_moves_times_where_it_says(
    kind: type[UniformTimes] | type[LogitNormalTimes],
) -> None:
    means = [
        kind(shift=shift, toward=toward).draw(draws(4), SIGMAS).mean().item()
        for toward, shift in (("clean", 3.0), ("noisy", 1.0), ("noisy", 3.0))
    ]
    assert means == sorted(means)
    assert means[1] - means[0] > 0.15
    assert means[2] - means[1] > 0.15


def test_uniform_by_hand() -> None:
    u = placed(0.0, 0.5, 0.5)
    flat = UniformTimes(count=3).draw(u, SIGMAS)
    torch.testing.assert_close(flat, torch.tensor([[0.0, 0.5, 5 / 6]]))
    # AWM: [.2, 1] first, then shift 3; .2 becomes .428571
    awm = UniformTimes(count=3, low=0.2, shift=3.0).draw(u, SIGMAS)
    expected = [0.428571, 3 * 0.6 / 2.2, 3 * (0.2 + 2 / 3) / (1 + 2 * (0.2 + 2 / 3))]
    assert awm[0].tolist() == pytest.approx(expected, abs=1e-6)
    # Flow-Factory: the fraction from noise runs over [0, .8], is shifted, and taken from 1
    flow = UniformTimes(count=3, low=0.2, shift=3.0, toward="clean").draw(u, SIGMAS)
    expected = [1.0, 1 - 1.2 / 1.8, 1 - 3 * (2 / 3) / (1 + 2 * (2 / 3))]
    assert flow[0].tolist() == pytest.approx(expected, abs=1e-6)
    loose = UniformTimes(count=3, stratified=False).draw(u, SIGMAS)
    assert loose.tolist() == [[0.0, 0.5, 0.5]]


def test_a_bound_of_uniform_times_is_the_one_before_the_shift() -> None:
    found = UniformTimes(low=0.2, high=0.6, shift=3.0).draw(draws(4), SIGMAS)
    low, high = shifted(torch.tensor([0.2, 0.6]), 3.0)
    assert low <= found.min() < low + 0.01
    assert high - 0.01 < found.max() <= high


def test_logit_normals_are_sigmoids_of_standard_normals() -> None:
    normals = logit_normal(draws(4).flatten()).logit()
    assert abs(normals.mean()) < 0.05
    assert abs(normals.std() - 1) < 0.05
    assert torch.isfinite(logit_normal(torch.tensor([0.0, 1.0])).logit()).all()


def test_logit_normal_times_stay_off_zero_and_keep_to_their_range() -> None:
    first = placed(0.0)
    noisy = LogitNormalTimes(count=1, shift=1.0).draw(first, SIGMAS)
    assert noisy.item() == pytest.approx(0.01)  # the published clamp
    assert LogitNormalTimes(count=1, shift=1.0, least=0.0).draw(first, SIGMAS).item() < 0.01
    # Flow-Factory's range .9: times from .1 to 1, the range after the shift
    ranged = {"count": 1, "low": 0.1, "high": 1.0, "shift": 1.0}
    clean = LogitNormalTimes(**ranged, toward="clean").draw(first, SIGMAS)
    assert clean.item() == pytest.approx(1 - 0.9 * 0.01)
    ends = LogitNormalTimes(count=1, low=0.1, high=0.5, shift=1.0, toward="clean")
    assert ends.draw(first, SIGMAS).item() == pytest.approx(0.5 - 0.4 * 0.01)
    middle = LogitNormalTimes(**ranged).draw(placed(0.5), SIGMAS)
    assert middle.item() == pytest.approx(0.55)


@pytest.mark.parametrize("kind", [UniformTimes, LogitNormalTimes])
def test_stratified_times_spread_better_than_loose_ones(
    kind: type[UniformTimes] | type[LogitNormalTimes],
) -> None:
    tight, loose = (kind(stratified=s).draw(draws(4), SIGMAS).mean(1).std() for s in (True, False))
    assert tight < loose / 2


# Provenance: diffusion.md 1.14: the boundaries of AWM (index) and Flow-Factory (sigma) on 14 steps
# with shift 3, and of Flow-Factory on FLUX at 384^2, 8 steps, whose shift is that of 576 tokens.
FLUX = uniform_sigmas(8, dynamic_shift((384 // 16) ** 2))
GOLDEN_BOUNDS: list[tuple[DiscreteTimes, Tensor, list[int]]] = [
    (DiscreteTimes(count=4, fraction=0.5, space="sigma"), SIGMAS, [0, 2, 5, 7, 10]),
    (DiscreteTimes(count=6, space="sigma", first="never"), SIGMAS, [1, 3, 5, 7, 9, 11, 13]),
    (DiscreteTimes(count=6, first="never"), SIGMAS, [1, 2, 4, 6, 8, 10, 12]),
    (DiscreteTimes(count=6), SIGMAS, [0, 2, 4, 6, 8, 10, 12]),
    (DiscreteTimes(count=2, fraction=0.7, space="sigma"), FLUX, [0, 3, 6]),
]


@pytest.mark.parametrize(("times", "sigmas", "bounds"), GOLDEN_BOUNDS)
def test_golden_bounds(times: DiscreteTimes, sigmas: Tensor, bounds: list[int]) -> None:
    assert times.bounds(sigmas).tolist() == bounds


def test_golden_ends_of_a_half() -> None:
    assert DiscreteTimes(fraction=0.5, space="sigma").end(SIGMAS) == 10
    assert DiscreteTimes(fraction=0.5, space="index").end(SIGMAS) == 7  # steps 0 to 6
    # a step that lies on the bound, but for rounding, is inside
    assert DiscreteTimes(fraction=0.9, space="sigma").end(uniform_sigmas(10, 1.0)) == 9


def test_the_first_step_may_be_forced() -> None:
    times = DiscreteTimes(count=5, first="always")
    assert times.bounds(SIGMAS).tolist() == [1, 3, 6, 9, 12]
    found = steps_of(times.draw(draws(5), SIGMAS))
    assert set(found[:, 0].tolist()) == {0}
    assert found[:, 1].min() == 1
    single = DiscreteTimes(count=1, first="always").draw(draws(1), SIGMAS)
    assert torch.equal(single, torch.ones(400, 1))


@pytest.mark.parametrize("space", ["index", "sigma"])
@pytest.mark.parametrize("first", ["drawn", "always", "never"])
def test_each_bin_gives_each_of_its_steps_but_the_upper_bound(space: str, first: str) -> None:
    times = DiscreteTimes(count=4, space=space, first=first)
    found = steps_of(times.draw(draws(4), SIGMAS))
    drawn = found[:, 1:] if first == "always" else found
    bounds = times.bounds(SIGMAS).tolist()
    for column, low, high in zip(drawn.unbind(1), bounds, bounds[1:], strict=False):
        assert set(column.tolist()) == set(range(low, high))
    assert found.max() == bounds[-1] - 1  # `hi` is exclusive in effect
    if first == "never":
        assert found.min() == 1


def test_a_whole_fraction_reaches_the_last_step_by_index_alone() -> None:
    ends = [DiscreteTimes(fraction=1.0, space=space).end(SIGMAS) for space in ("index", "sigma")]
    assert ends == [14, 13]


@pytest.mark.parametrize(
    "times",
    [
        DiscreteTimes(count=8, fraction=0.5),
        DiscreteTimes(count=13, space="sigma", first="never"),
        DiscreteTimes(count=1, fraction=1e-3, space="sigma"),
    ],
)
def test_empty_bins_are_refused(times: DiscreteTimes) -> None:
    with pytest.raises(ModelError, match=f"of the {times.space} leaves too few of the 14 sampled"):
        times.require_steps(SIGMAS)


def test_a_rollouts_own_times_come_in_random_order_and_none_twice() -> None:
    sigmas = diffusers_sigmas(10, 3.0)
    times = RolloutTimes(count=9)
    found = steps_of(times.draw(draws(9), sigmas), sigmas)
    assert all(len(row.unique()) == 9 for row in found)
    # every step comes first equally often, and each is the one that is left out now and then
    counts = found[:, 0].bincount(minlength=10)
    assert counts.min() > 20
    assert {45 - int(row.sum()) for row in found} == set(range(10))


def test_a_rollouts_own_times_by_hand() -> None:
    # of 0 1 2 3 the third, which 0 gives its place to; of 1 0 3 the first; of 0 3 the second
    sigmas = torch.tensor([1.0, 0.75, 0.5, 0.25, 0.0])
    found = RolloutTimes(count=3).draw(placed(0.5, 0.0, 0.9), sigmas)
    assert found.tolist() == [[0.5, 0.75, 0.25]]
