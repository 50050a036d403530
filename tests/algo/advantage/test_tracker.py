"""DDPO's running statistics of each prompt."""

import json

import pytest
import torch

from rlfactory.algo.advantage.tracker import PromptTracker
from rlfactory.rollout import Rollout
from rlfactory.utils.pytree import require


def advantages(tracker: PromptTracker, prompts: list[str], rewards: list[float]) -> torch.Tensor:
    count = len(prompts)
    rollout = Rollout(
        prompts=prompts,
        metadata=[{}] * count,
        groups=torch.arange(count),
        index=torch.arange(count),
        rewards={"main": torch.tensor(rewards)},
    )
    return require(tracker(rollout, "main").advantage, "advantages")


# Provenance: diffusion.md 1.1, ddpo-pytorch's PerPromptStatTracker(buffer_size=4, min_count=3).
FIRST = (list("aaba"), [1.0, 2, 3, 6], [-0.925820, -0.462910, 0, 1.388730])
SECOND = (list("abbb"), [5.0, 1, 2, 0], [0.727607, -0.447213, 0.447213, -1.341640])


def test_golden() -> None:
    tracker = PromptTracker(buffer_size=4, min_count=3)
    for prompts, rewards, expected in (FIRST, SECOND):
        found = advantages(tracker, prompts, rewards)
        torch.testing.assert_close(found, torch.tensor(expected), rtol=0, atol=2e-6)
        assert found.dtype == torch.float32


def test_what_it_knows_survives_a_restart() -> None:
    tracker, again = (PromptTracker(buffer_size=4, min_count=3) for _ in range(2))
    advantages(tracker, *FIRST[:2])
    again.load_state_dict(json.loads(json.dumps(tracker.state_dict())))
    assert torch.equal(advantages(again, *SECOND[:2]), advantages(tracker, *SECOND[:2]))
    assert again.state_dict() == tracker.state_dict()
    assert [len(kept) for kept in again.state_dict().values()] == [4, 4]


def test_it_forgets_the_oldest() -> None:
    tracker = PromptTracker(buffer_size=2, min_count=1)
    advantages(tracker, ["a"] * 3, [100.0, 1.0, 3.0])
    assert tracker.state_dict() == {"a": [1.0, 3.0]}
    again = PromptTracker(buffer_size=2, min_count=1)
    again.load_state_dict(tracker.state_dict())
    for each in (tracker, again):
        found = advantages(each, ["a"], [5.0])
        torch.testing.assert_close(found, torch.tensor([1.0]), rtol=0, atol=1e-5)


def test_the_whole_prompt_is_the_key() -> None:
    tracker = PromptTracker(buffer_size=4, min_count=2)
    start = "very " * 100
    found = advantages(tracker, [f"{start}good", f"{start}bad"] * 2, [1.0, 10, 3, 30])
    torch.testing.assert_close(found, torch.tensor([-1.0, -1, 1, 1]), rtol=0, atol=1e-5)


def test_one_sample_of_a_prompt_is_enough() -> None:
    assert not PromptTracker.grouped
    tracker = PromptTracker(buffer_size=8, min_count=2)
    first = advantages(tracker, ["a", "b"], [0.0, 2.0])
    torch.testing.assert_close(first, torch.tensor([-1.0, 1.0]), rtol=0, atol=1e-5)
    second = advantages(tracker, ["a", "b"], [4.0, 2.0])
    torch.testing.assert_close(second, torch.tensor([1.0, 0.0]), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("clip", "highest"), [(5.0, 5.0), (10.0, 9.95), (None, 9.95)])
def test_it_clips(clip: float | None, highest: float) -> None:
    tracker = PromptTracker(buffer_size=100, min_count=1, clip=clip)
    found = advantages(tracker, ["a"] * 100, [0.0] * 99 + [1.0])
    assert found.max().item() == pytest.approx(highest, abs=1e-2)


def test_nothing_gives_nothing() -> None:
    assert len(advantages(PromptTracker(), [], [])) == 0
    torch.testing.assert_close(advantages(PromptTracker(), ["a"], [3.0]), torch.zeros(1))
