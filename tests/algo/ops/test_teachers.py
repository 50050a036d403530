"""Each sample has one teacher, and each micro-batch too."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from rlfactory.algo.opd import OPD
from rlfactory.algo.ops.noised_items import noised_items
from rlfactory.algo.ops.teachers import TaughtItems, TaughtTokens
from rlfactory.algo.times import UniformTimes
from rlfactory.dynamics.schedule import uniform_sigmas
from rlfactory.rollout import Rollout, Tokens
from rlfactory.utils.errors import TrainingError
from rlfactory.utils.pytree import widened

TEACHERS = torch.tensor([1, 0, 1, 0])


@pytest.fixture
def rollout(linear: Callable[..., Any], roll: Callable[..., Rollout]) -> Rollout:
    metadata = [{"task": 1}, {"task": 0}, {"task": 0}, {"task": 2}]
    drawn = roll(linear(), [0.0, 1.0, 2.0, 3.0])
    return replace(drawn, groups=torch.tensor([4, 5, 6, 7]), metadata=metadata)


def test_groups_take_turns_or_the_data_say_whose_they_are(rollout: Rollout) -> None:
    assert OPD(teachers=["a"] * 3, column=None).numbers(rollout).tolist() == [1, 2, 0, 1]
    assert OPD(teachers=["a"] * 3, column="task").numbers(rollout).tolist() == [1, 0, 0, 2]
    with pytest.raises(TrainingError, match="holds 2; allowed are .* 0 to 1"):
        OPD(teachers=["a"] * 2, column="task").numbers(rollout)
    with pytest.raises(TrainingError, match="holds None"):
        OPD(teachers=["a"] * 2, column="other").numbers(rollout)


@pytest.mark.parametrize(("size", "lengths"), [(1, [1] * 8), (3, [3, 1, 3, 1]), (9, [4, 4])])
def test_micro_batches_of_images_have_one_teacher(
    rollout: Rollout, linear: Callable[..., Any], size: int, lengths: list[int]
) -> None:
    times, sigmas = UniformTimes(count=2), uniform_sigmas(6, 3.0)
    made = noised_items(rollout, linear(), times, sigmas, seed=0, iteration=0)
    batches: list[Any] = [*widened(TaughtItems, made, teachers=TEACHERS).split(size)]
    assert [len(batch) for batch in batches] == lengths
    for batch in batches:
        assert (TEACHERS[batch.sample] == batch.teacher).all()
        assert torch.equal(batch.x0, rollout.latents[batch.sample])  # type: ignore[index]
    assert sorted(torch.cat([batch.sample for batch in batches]).tolist()) == [
        0,
        0,
        1,
        1,
        2,
        2,
        3,
        3,
    ]


def test_micro_batches_of_texts_have_one_teacher() -> None:
    mask = torch.ones(4, 3, dtype=torch.bool)
    response = torch.arange(12).view(4, 3)
    zeros, ended = torch.zeros(4, 3), torch.ones(4, dtype=torch.bool)
    tokens = Tokens(response, mask, response, mask, ended, zeros, zeros).measured()
    whole = TaughtTokens(tokens, zeros, zeros, teachers=TEACHERS, max_rows=1)
    batches: list[Any] = [*whole.split(4)]
    assert [batch.teacher for batch in batches] == [0, 0, 1, 1]
    assert [int(batch.tokens.response[0, 0]) for batch in batches] == [3, 9, 0, 6]
    assert sum(batch.weight for batch in batches) == whole.weight
