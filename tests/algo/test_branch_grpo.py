"""BranchGRPO on trees whose numbers are known."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from rlfactory.algo.advantage.group import GroupAdvantage
from rlfactory.algo.branch_grpo import BranchGRPO
from rlfactory.algo.grpo import GRPO
from rlfactory.algo.ops.old_log_probs import with_old_log_probs
from rlfactory.batch import Batch, TrainingItems
from rlfactory.dynamics.flow_sde import FlowSDE
from rlfactory.dynamics.schedule import uniform_sigmas
from rlfactory.model.base import ImageModel
from rlfactory.rollout import Rollout
from rlfactory.train.sampling.branch_tree import sample_tree
from rlfactory.train.sampling.trajectories import RolloutSpec

MakeModel = Callable[..., ImageModel]
REWARDS = [1.0, 3.0, 2.0, 8.0, 0.0, 0.0, 4.0, 8.0]


def make(**options: Any) -> BranchGRPO:
    advantage = GroupAdvantage(unbiased=True, eps=1e-8)
    return BranchGRPO(FlowSDE(noise_level=0.7), advantage, **{"clip_range": 1e-3, **options})


def rolled(model: ImageModel, branches: int = 4, splits: tuple[int, ...] = (0, 2)) -> Rollout:
    """Eight samples of two prompts: trees with four stochastic steps."""
    generator = torch.Generator().manual_seed(0)
    shape = model.resolution.shape
    condition = model.encode([f"prompt {i // 4}" for i in range(8)])
    latents, transitions, tree = sample_tree(
        model,
        condition,
        torch.randn(8 // branches, *shape, generator=generator),
        uniform_sigmas(6, 3.0),
        RolloutSpec(
            FlowSDE(noise_level=0.7),
            [0, 1, 2, 3],
            torch.randn(8, 4, *shape, generator=generator),
            mean=True,
            branches=branches,
            splits=splits,
        ),
    )
    return Rollout(
        prompts=["prompt"] * 8,
        metadata=[{}] * 8,
        groups=torch.arange(2).repeat_interleave(4),
        index=torch.arange(8),
        condition=condition,
        latents=latents,
        transitions=transitions,
        tree=tree,
        rewards={"main": torch.tensor(REWARDS)},
    )


def batch_of(algo: BranchGRPO | GRPO, rollout: Rollout, model: ImageModel) -> Batch:
    rollout = algo.compute_advantages(rollout, "main")
    (batch,) = algo.training_items(rollout, model, seed=0, iteration=0).split(100)
    return batch


def test_each_depth_has_advantages_of_its_own(linear: MakeModel) -> None:
    found = make().compute_advantages(rolled(linear()), "main")
    assert found.advantage is not None
    # two nodes of rewards 2 and 5 up to the second split, then four of 1, 3, 2, 8
    half = 1 / 2**0.5  # of two values, either is the std over the root of 2 from their mean
    leaves = (torch.tensor([1.0, 3, 2, 8]) - 3.5) / torch.tensor([1.0, 3, 2, 8]).std()
    expected = torch.tensor([-half, -half, half, half])[:, None].repeat(1, 4)
    expected[:, 2:] = leaves[:, None]
    torch.testing.assert_close(found.advantage[:4], expected)


def test_each_edge_is_one_item(linear: MakeModel) -> None:
    model = linear()
    batch = batch_of(make(), rolled(model), model)
    assert batch.sample.tolist() == [
        0,
        0,
        0,
        0,
        1,
        1,
        2,
        2,
        2,
        2,
        3,
        3,
        4,
        4,
        4,
        4,
        5,
        5,
        6,
        6,
        6,
        6,
        7,
        7,
    ]
    states = torch.cat([batch.x, batch.require_replayed().next], 1).flatten(1)
    assert len(states.unique(dim=0)) == len(batch) == 2 * (2 + 2 + 4 + 4)


def test_without_branches_it_is_grpo_bit_for_bit(linear: MakeModel) -> None:
    model = linear()
    rollout = rolled(model, branches=1, splits=())
    mine = make()
    grpo = GRPO(FlowSDE(noise_level=0.7), mine.advantage, clip_range=1e-3)  # type: ignore[arg-type]
    own, other = batch_of(mine, rollout, model), batch_of(grpo, rollout, model)
    for name in ("x", "t", "sample", "advantage"):
        assert torch.equal(getattr(own, name), getattr(other, name)), name
    found, expected = mine.loss(model, own), grpo.loss(model, other)
    assert torch.equal(found.value, expected.value)
    parameters = [*model.weights.parameters.values()]
    for a, b in zip(
        torch.autograd.grad(found.value, parameters),
        torch.autograd.grad(expected.value, parameters),
        strict=True,
    ):
        assert torch.equal(a, b)


def test_before_the_first_update_the_ratio_is_exactly_one(linear: MakeModel) -> None:
    model = linear()
    loss = make().loss(model, batch_of(make(), rolled(model), model))
    assert loss.metrics["ratio/max_dev"].max() == 0
    assert len(loss.metrics["loss/policy"]) == 24


def test_pruned_edges_are_no_items(linear: MakeModel) -> None:
    model = linear()
    rollout = rolled(model)
    wide = batch_of(make(width="extremes"), rollout, model)
    # the last step of the best and the worst leaf of each prompt alone; of equal ones the last
    last = wide.t == wide.t.min()
    assert wide.sample[last].tolist() == [0, 3, 5, 7]
    assert len(wide) == 24 - 4
    best = batch_of(make(width="best_child"), rollout, model)
    assert best.sample[best.t == best.t.min()].tolist() == [1, 3, 4, 7]
    algo = make(skip_steps=[1, 3], slide_every=2)
    scored = algo.compute_advantages(rollout, "main")
    kept = [
        sorted(
            {
                round(t, 4)
                for t in algo.training_items(scored, model, seed=0, iteration=i)
                .split(100)
                .__next__()
                .t.tolist()
            }
        )
        for i in (0, 2, 4)
    ]
    times = sorted({round(t, 4) for t in uniform_sigmas(6, 3.0)[:4].tolist()})
    assert kept == [[times[1], times[3]], [times[0], times[2]], [times[0], times[2]]]


def test_a_leaf_without_a_score_leaves_its_edges_to_the_next(linear: MakeModel) -> None:
    model = linear()
    rest = rolled(model)[torch.arange(1, 8)]
    found = make().compute_advantages(rest, "main")
    (batch,) = make().training_items(found, model, seed=0, iteration=0).split(100)
    assert batch.sample.tolist()[:6] == [0, 0, 0, 0, 1, 1]
    assert len(batch) == 24 - 2
    torch.testing.assert_close(batch.advantage[:2].abs(), torch.full((2,), 0.5**0.5))


def test_advantages_stay_with_their_edges_in_small_batches(linear: MakeModel) -> None:
    model = linear()
    whole = batch_of(make(), rolled(model), model)
    scored = make().compute_advantages(rolled(model), "main")
    parts = [*make().training_items(scored, model, seed=0, iteration=0).split(7)]
    assert [len(part) for part in parts] == [7, 7, 7, 3]
    for name in ("x", "t", "advantage", "sample"):
        assert torch.equal(torch.cat([getattr(part, name) for part in parts]), getattr(whole, name))


def test_recomputed_likelihoods_are_those_of_the_edges(linear: MakeModel) -> None:
    model, algo = linear(), make(old_log_probs="recomputed")
    rollout = algo.compute_advantages(rolled(model), "main")

    def passes(samples: Rollout) -> tuple[TrainingItems, Iterator[tuple[Batch, bool]]]:
        items = algo.training_items(samples, model, seed=0, iteration=0)
        return items, ((batch, True) for batch in items.split(5))

    rows = [torch.tensor([3, 0, 1]), torch.tensor([2])]
    found = with_old_log_probs(algo, model, rollout, rows, passes, torch.clone)
    assert found.old_log_prob is not None
    assert rollout.tree is not None
    assert rollout.tree.trained is not None
    known = rollout.tree.trained & (torch.arange(8) < 4)[:, None]
    assert torch.equal(~found.old_log_prob.isnan(), known)
    assert torch.equal(found.old_log_prob[known], rollout.transitions.log_prob[known])  # type: ignore[union-attr]
    (batch,) = algo.training_items(found[torch.arange(4)], model, seed=0, iteration=0).split(100)
    assert algo.loss(model, batch).metrics["ratio/max_dev"].max() == 0


def test_it_needs_trees(linear: MakeModel) -> None:
    model = linear()
    flat = replace(rolled(model), tree=None)
    with pytest.raises(ValueError, match="branch_at=tree"):
        make().compute_advantages(flat, "main")
