"""What belongs to a sample is kept once and meets its items in the batches."""

from dataclasses import replace

import pytest
import torch

from rlfactory.batch import Items, Outputs, Taken
from rlfactory.rollout import Condition


def make_items(samples: int = 5, each: int = 3) -> Items:
    """Every number says where it belongs: sample.item."""
    place = torch.arange(samples)[:, None] + torch.arange(each) / 10
    image = place.view(samples, each, 1, 1, 1).half()
    line = torch.arange(samples).float()
    return Items(
        x=image,
        t=place,
        x0=line.view(-1, 1, 1, 1),
        condition=Condition({"a": line}),
        advantage=line,
        taken=Taken(place, image, place),
        eps=image.float(),
        old=place,
    )


@pytest.mark.parametrize(
    ("size", "sizes"), [(100, [15]), (7, [6, 6, 3]), (3, [3] * 5), (2, [2] * 7 + [1])]
)
def test_batches_are_whole_samples_where_these_fit(size: int, sizes: list[int]) -> None:
    items = make_items()
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
        assert torch.equal(batch.replay().next, batch.x)
        assert torch.equal(batch.replay().t_next, batch.t)
        assert torch.equal(batch.noise().flatten(), batch.x.flatten())
        assert batch.old is not None
        assert torch.equal(batch.old, batch.t)


def test_states_come_back_in_float32() -> None:
    (batch,) = make_items().split(100)
    assert batch.x.dtype == batch.replay().next.dtype == torch.float32


def test_means_over_a_samples_items() -> None:
    (batch,) = make_items(samples=2).split(100)
    torch.testing.assert_close(batch.by_sample(batch.t), torch.tensor([0.1, 1.1]))


def test_what_a_batch_lacks_is_an_error() -> None:
    items = replace(make_items(), taken=None, eps=None)
    (batch,) = items.split(100)
    with pytest.raises(ValueError, match="the steps taken"):
        batch.replay()
    with pytest.raises(ValueError, match="the noise"):
        batch.noise()
    with pytest.raises(ValueError, match="steps"):
        Outputs(torch.zeros(1)).step_taken()
