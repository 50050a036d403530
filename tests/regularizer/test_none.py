from collections.abc import Callable

import torch

from rlfactory.algo.nft import NFT
from rlfactory.model.base import ImageModel
from rlfactory.model.weights import OLD
from rlfactory.regularizer.none import NoRegularizer
from rlfactory.rollout import Rollout


def test_it_adds_nothing_and_evaluates_nothing(
    linear: Callable[..., ImageModel], roll: Callable[..., Rollout]
) -> None:
    model = linear()
    model.weights.add(OLD)
    batch = NFT().items(roll(model, [1.0, -1.0]), model, seed=0, iteration=0)
    loss = NFT().loss(model, batch)
    evaluations = model.evaluations
    penalty, measured = NoRegularizer().penalty(model, batch, loss.outputs)
    assert model.evaluations == evaluations
    assert NoRegularizer().references == set()
    assert torch.equal(loss.value + penalty, loss.value)
    assert measured == {}
