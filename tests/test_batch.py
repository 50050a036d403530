"""What belongs to a sample is kept once and meets its items in the batches."""

from dataclasses import replace

import pytest
import torch

from rlfactory.batch import Outputs, TrainingItems
from rlfactory.rollout import Condition, Transitions


def make_items(samples: int = 5, each: int = 3) -> TrainingItems:
    """Every number says where it belongs: sample.item."""
    place = torch.arange(samples)[:, None] + torch.arange(each) / 10
    image = place.view(samples, each, 1, 1, 1).half()
    line = torch.arange(samples).float()
    return TrainingItems(
        x=image,
        t=place,
        x0=line.view(-1, 1, 1, 1),
        condition=Condition({"a": line}),
        advantage=line,
        replayed=Transitions(place, place, image, image, place),
        eps=image.float(),
        old_log_prob=place,
    )


@pytest.mark.parametrize(
    ("size", "whole", "sizes"),
    [
        (100, False, [15]),
        (7, False, [7, 7, 1]),
        (2, False, [2] * 7 + [1]),
        (7, True, [6, 6, 3]),
        (3, True, [3] * 5),
        (2, True, [2] * 7 + [1]),
    ],
)
def test_micro_batches_have_the_size_asked_for_or_whole_samples(
    size: int, whole: bool, sizes: list[int]
) -> None:
    items = replace(make_items(), whole_samples=whole)
    batches = list(items.split(size))
    assert [len(batch) for batch in batches] == sizes
    assert sum(batch.weight for batch in batches) == items.weight == 15
    torch.testing.assert_close(torch.cat([batch.t for batch in batches]), items.t.flatten())


@pytest.mark.parametrize("size", [100, 7, 2])
def test_each_item_meets_its_own_sample(size: int) -> None:
    for batch in make_items().split(size):
        whole = batch.t.floor()
        assert torch.equal(batch.sample.float(), whole)
        assert torch.equal(batch.advantage, whole)
        assert torch.equal(batch.x0.flatten(), whole)
        assert torch.equal(batch.condition.tensors["a"], whole)
        assert torch.equal(batch.x.flatten(), batch.t.half().float())
        assert torch.equal(batch.require_replayed().next, batch.x)
        assert torch.equal(batch.require_replayed().t_next, batch.t)
        assert torch.equal(batch.require_eps().flatten(), batch.x.flatten())
        assert batch.old_log_prob is not None
        assert torch.equal(batch.old_log_prob, batch.t)


def test_states_come_back_in_float32() -> None:
    (batch,) = make_items().split(100)
    assert batch.x.dtype == batch.require_replayed().next.dtype == torch.float32


def test_means_over_a_samples_items() -> None:
    (batch,) = make_items(samples=2).split(100)
    log_ratios, advantage = batch.per_sample(batch.t)
    torch.testing.assert_close(log_ratios, torch.tensor([0.1, 1.1]))
    assert torch.equal(advantage, torch.tensor([0.0, 1.0]))


@pytest.mark.parametrize("size", [1, 2])
def test_divided_samples_have_the_value_and_the_gradient_of_whole_ones(size: int) -> None:
    items = replace(make_items(samples=4), whole_samples=True)
    moved = torch.randn(12, generator=torch.Generator().manual_seed(0)).requires_grad_()

    def loss(log_ratios: torch.Tensor, advantage: torch.Tensor) -> torch.Tensor:
        return torch.maximum(-advantage * log_ratios.exp(), -advantage * 1.2)

    (whole,) = items.split(100)
    expected = loss(*whole.per_sample(moved)).mean()
    (gradient,) = torch.autograd.grad(expected, moved)
    divided = replace(items, sample_log_ratio=moved.detach().view(4, 3).mean(1))
    parts = torch.split(moved, size)
    losses = [
        loss(*batch.per_sample(part))
        for batch, part in zip(divided.split(size), parts, strict=True)
    ]
    found = torch.cat(losses).mean()
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found, moved)[0], gradient)


def test_prompts_that_are_stored_once_meet_their_samples() -> None:
    embeddings = {"a": torch.tensor([10.0, 20.0])}
    shared = Condition(embeddings, torch.tensor([0, 0, 1, 1, 0]))
    items = replace(make_items(), condition=shared)
    rows = torch.cat([batch.condition.tensors["a"] for batch in items.split(4)])
    assert rows.view(5, 3)[:, 0].tolist() == [10.0, 10.0, 20.0, 20.0, 10.0]


def test_what_a_batch_lacks_is_an_error() -> None:
    items = replace(make_items(), replayed=None, eps=None)
    (batch,) = items.split(100)
    with pytest.raises(ValueError, match="the steps taken"):
        batch.require_replayed()
    with pytest.raises(ValueError, match="the noise"):
        batch.require_eps()
    with pytest.raises(ValueError, match="steps"):
        Outputs(torch.zeros(1)).require_step()
