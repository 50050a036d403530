"""Trees of trajectories."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from rlfactory.dynamics.base import Dynamics
from rlfactory.dynamics.dance_sde import DanceSDE
from rlfactory.dynamics.flow_sde import FlowSDE
from rlfactory.dynamics.schedule import uniform_sigmas
from rlfactory.model.base import ImageModel
from rlfactory.rollout import Condition, Transitions, Tree
from rlfactory.train.sampling.branch_tree import sample_tree
from rlfactory.train.sampling.trajectories import RolloutSpec, sample_branched

SIGMAS = uniform_sigmas(6, 3.0)
STARTS = torch.randn(2, 1, 2, 2, generator=torch.Generator().manual_seed(0))
NOISE = torch.randn(8, 6, 1, 2, 2, generator=torch.Generator().manual_seed(1))

MakeModel = Callable[..., ImageModel]


def drawn(
    model: ImageModel,
    steps: Sequence[int],
    branches: int,
    splits: Sequence[int],
    dynamics: Dynamics | None = None,
    **options: Any,
) -> tuple[torch.Tensor, Transitions, Tree]:
    spec = RolloutSpec(
        dynamics or FlowSDE(noise_level=0.7),
        steps,
        NOISE[:, : len(steps)],
        branches=branches,
        splits=splits,
        **options,
    )
    count = 2 * branches
    condition = Condition({"x": torch.arange(count).div(branches).floor()})
    return sample_tree(model, condition, STARTS, SIGMAS, spec)


def test_leaves_share_the_steps_up_to_where_they_split(linear: MakeModel) -> None:
    _, taken, tree = drawn(linear(), [0, 1, 2, 4], 4, [1, 2])
    assert tree.step[0].tolist() == [0, 1, 2, 4]
    first = [[0, 0, 0, 0, 0], [0, 0, 0, 1, 1], [0, 0, 2, 2, 2], [0, 0, 2, 3, 3]]
    assert tree.node.tolist() == first + [[n + 4 for n in row] for row in first]
    for column in range(4):
        for states, nodes in (
            (taken.x, tree.node[:, column]),
            (taken.next, tree.node[:, column + 1]),
        ):
            for row, node in enumerate(nodes.tolist()):
                assert torch.equal(states[row, column], states[node, column])
            assert len(states[:, column].unique(dim=0)) == len(nodes.unique())
    assert torch.equal(tree.log_prob, taken.log_prob)


def test_the_noise_of_a_step_is_its_first_leafs_and_splits_scale_it(linear: MakeModel) -> None:
    model, dynamics = linear(), FlowSDE(noise_level=0.7)
    _, taken, tree = drawn(model, [0, 1, 2, 3], 4, [1, 2], noise_scale=4.0)
    for column, scale in enumerate([1, 4, 4, 1]):
        x, t, t_next = taken.x[:, column], taken.t[:, column], taken.t_next[:, column]
        prediction = model.predict(x, t, Condition({"x": torch.zeros(8)}))
        noise = scale * NOISE[tree.node[:, column + 1], column]
        step = dynamics.step(x, prediction, t, t_next, noise=noise)
        torch.testing.assert_close(taken.next[:, column], step.next)
        assert step.log_prob is not None
        torch.testing.assert_close(taken.log_prob[:, column], step.log_prob)


@pytest.mark.parametrize("tail", [None, 0.5])
@pytest.mark.parametrize("max_rows", [None, 3])
def test_without_splits_it_is_sampling_from_starts_of_their_own(
    tail: float | None, max_rows: int | None, linear: MakeModel
) -> None:
    model = linear()
    latents, taken, tree = drawn(model, [1, 3], 1, [], tail=tail, max_rows=max_rows)
    spec = RolloutSpec(
        FlowSDE(noise_level=0.7), [1, 3], NOISE[:2, :2], tail=tail, max_rows=max_rows
    )
    condition = Condition({"x": torch.zeros(2)})
    expected, transitions = sample_branched(model, condition, STARTS, SIGMAS, spec)
    assert torch.equal(latents, expected)
    for name in ("t", "t_next", "x", "next", "log_prob"):
        assert torch.equal(getattr(taken, name), getattr(transitions, name))
    assert tree.node.tolist() == [[0, 0, 0], [1, 1, 1]]


def test_leaves_that_split_at_once_are_branches(linear: MakeModel) -> None:
    model = linear()
    latents, taken, _ = drawn(model, [2, 3], 4, [2])
    spec = RolloutSpec(FlowSDE(noise_level=0.7), [2, 3], NOISE[:, :2], branches=4)
    condition = Condition({"x": torch.zeros(8)})
    expected, transitions = sample_branched(model, condition, STARTS, SIGMAS, spec)
    torch.testing.assert_close(latents, expected)
    torch.testing.assert_close(taken.next, transitions.next)


def test_a_last_step_of_dance_leaves_its_estimate_of_x0(linear: MakeModel) -> None:
    model = linear()
    latents, taken, _ = drawn(model, [0, 5], 2, [0], DanceSDE(eta=0.3))
    x, t = taken.x[:, 1], taken.t[:, 1]
    clean = model.forward_process.to_x0(x, model.predict(x, t, Condition({"x": t})), t)
    torch.testing.assert_close(latents, clean.detach())


@pytest.mark.parametrize("max_rows", [None, 3])
def test_the_network_sees_each_node_once(max_rows: int | None, linear: MakeModel) -> None:
    model = linear()
    model.evaluations.read_and_reset()
    drawn(model, [0, 1, 2], 4, [0, 2], max_rows=max_rows)
    # two trees: a root, two nodes twice, then four leaves for three steps
    assert model.evaluations.read_and_reset().forward == 2 * (1 + 2 + 2 + 3 * 4)
