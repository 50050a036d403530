"""A reward in a process of its own: the same scores, and no harm from what hangs or dies."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from rlfactory.prompts.base import Prompt
from rlfactory.reward.base import RewardError, Samples, check_scores
from rlfactory.reward.jpeg import Compressibility
from rlfactory.train.scoring.subprocess_reward import (
    SubprocessReward,
    _pack,
    _split_groups,
    _unpack,
)

CODE = """
import os, sys, time

def judge(completions):
    if "hang" in completions:
        time.sleep(60)
    if "die" in completions:
        os._exit(1)
    return [len(text) for text in completions] if "short" not in completions else []
"""
Make = Callable[..., SubprocessReward]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    (tmp_path / "mine.py").write_text(CODE)
    made: list[SubprocessReward] = []

    def isolated(target: str = "function.Function", **options: object) -> SubprocessReward:
        node = {"_target_": f"rlfactory.reward.{target}"}
        if "function" in target:
            node["function"] = f"{tmp_path}/mine.py:judge"
        made.append(SubprocessReward(node, "reward", torch.device("cpu"), **options))  # type: ignore[arg-type]
        return made[-1]

    yield isolated
    for reward in made:
        reward.close()


def texts(*words: str) -> Samples:
    return Samples([""] * len(words), [{}] * len(words), torch.arange(len(words)), texts=[*words])


def test_pictures_are_scored_as_by_the_reward_itself(make: Make) -> None:
    made = make("jpeg.Compressibility", processes=2)
    assert (made.main, made.media, made.metadata) == ("compressibility", "images", ())
    assert made.better == {"jpeg_kb": "lower"}
    images = torch.randint(0, 255, (5, 3, 16, 16), dtype=torch.uint8)
    samples = Samples(["x"] * 5, [{}] * 5, torch.tensor([0, 0, 0, 1, 1]), images)
    found, expected = made.score(samples), Compressibility().score(samples)
    check_scores(made, found, 5)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in found)


@pytest.mark.slow
def test_what_hangs_or_dies_is_replaced_and_has_no_score(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    made = make(processes=2, timeout=3.0)
    found = made.score(texts("a", "hang", "bcd"))["judge"]
    assert found.isnan().tolist() == [True, True, False]
    assert "judge gave no answer within 3 s" in caplog.text
    found = made.score(texts("abc", "a", "die"))["judge"]
    assert found[:2].tolist() == [3.0, 1.0]
    assert found[2].isnan()
    assert "the process of reward judge died" in caplog.text
    assert made.score(texts("ab", "a", "abcd"))["judge"].tolist() == [2, 1, 4]


def test_an_error_has_its_own_message(make: Make) -> None:
    with pytest.raises(RewardError, match="reward judge: there came 0 of them; wanted"):
        make().score(texts("short"))
    with pytest.raises(RewardError, match="quality=0"):
        SubprocessReward(
            {"_target_": "rlfactory.reward.jpeg.Compressibility", "quality": 0},
            "reward",
            torch.device("cpu"),
        )


def test_what_prompts_must_bring_is_asked_of_the_reward_itself(make: Make) -> None:
    made = make("shapes.Shapes")
    made.check_prompts([Prompt("a star", {"include": [{"class": "star", "count": 1}]})])
    with pytest.raises(RewardError, match="'two stars': its metadata lacks include"):
        made.check_prompts([Prompt("two stars", {})])


@pytest.mark.parametrize(
    ("groups", "count", "shares"),
    [
        ([0, 0, 1, 1, 2], 2, [[0, 1, 2, 3], [4]]),
        ([0, 0, 0], 4, [[0, 1, 2]]),
        ([0, 1, 2, 3], 3, [[0, 1], [2, 3]]),
        ([5], 1, [[0]]),
        ([1, 0, 1, 0], 2, [[1, 3], [0, 2]]),
    ],
)
def test_groups_are_not_cut(groups: list[int], count: int, shares: list[list[int]]) -> None:
    assert [rows.tolist() for rows in _split_groups(torch.tensor(groups), count)] == shares


def test_each_score_goes_back_to_its_sample(make: Make) -> None:
    samples = Samples([""] * 4, [{}] * 4, torch.tensor([1, 0, 1, 0]), texts=["a", "bb", "ccc", ""])
    assert make(processes=2).score(samples)["judge"].tolist() == [1, 2, 3, 0]


def test_what_remembers_is_not_put_where_it_can_be_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
from rlfactory.reward.length import Length

class Counts(Length):
    def state_dict(self):
        return {"seen": 0}
"""
    (tmp_path / "remembering.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(RewardError, match="scoring.background=thread"):
        SubprocessReward(
            {"_target_": "remembering.Counts", "target": 5}, "reward", torch.device("cpu")
        )


def test_no_tensor_of_samples_goes_through_shared_memory() -> None:
    samples = Samples(
        ["a", "b"], [{}, {}], torch.tensor([0, 1]), None, ["x", "y"], torch.tensor([True, False])
    )
    packed = _pack(samples)
    assert not any(isinstance(value, torch.Tensor) for value in packed.values())
    found = _unpack(packed)
    assert found.groups.tolist() == [0, 1]
    assert found.ended is not None
    assert found.ended.tolist() == [True, False]
