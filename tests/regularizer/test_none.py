from collections.abc import Callable

import torch

from rlfactory.algo.advantage.group import GroupAdvantage
from rlfactory.algo.nft import NFT
from rlfactory.algo.times import UniformTimes
from rlfactory.dynamics.schedule import uniform_sigmas
from rlfactory.model.base import ImageModel
from rlfactory.model.weight_sets import OLD
from rlfactory.regularizer.none import NoRegularizer
from rlfactory.rollout import Rollout


def test_it_adds_nothing_and_evaluates_nothing(
    linear: Callable[..., ImageModel], roll: Callable[..., Rollout]
) -> None:
    model = linear()
    model.weights.add(OLD)
    algo = NFT(GroupAdvantage(), UniformTimes(), uniform_sigmas(6, 3.0))
    (batch,) = algo.training_items(roll(model, [1.0, -1.0]), model, seed=0, iteration=0).split(100)
    loss = algo.loss(model, batch)
    evaluations = model.calls
    penalty, measured = NoRegularizer().penalty(model, batch, loss.outputs)
    assert model.calls == evaluations
    assert NoRegularizer().references == set()
    assert torch.equal(loss.value + penalty, loss.value)
    assert measured == {}
