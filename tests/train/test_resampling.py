"""Dynamic sampling: groups of equal rewards give way to groups of other prompts."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rlfactory.hardware.local import Local
from rlfactory.model.causal_lm import CausalLM
from rlfactory.reward.base import Reward, Samples
from rlfactory.rollout import Rollout, Tree, append_rollouts
from rlfactory.train.resampling import keep_varied, renumbered, resample, varied_groups
from rlfactory.train.trainer import Trainer
from rlfactory.utils.pytree import require
from tests.train.test_trainer import run, trainer  # noqa: F401

NAN = float("nan")


def scored(rewards: list[float], groups: list[int]) -> Rollout:
    count = len(groups)
    return Rollout(
        prompts=[f"prompt {g}" for g in groups],
        metadata=[{}] * count,
        groups=torch.tensor(groups),
        index=torch.arange(count),
        rewards={"main": torch.tensor(rewards), "other": torch.zeros(count)},
    )


class OddGroups(Reward):
    """The brightness in groups of odd number, and 0 in all others."""

    media = "images"
    main = "brightness"

    def score(self, samples: Samples) -> dict[str, torch.Tensor]:
        assert samples.images is not None
        value = samples.images.float().mean((1, 2, 3)) / 255
        return {"brightness": value * (samples.groups % 2)}


def test_a_group_differs_within_by_the_scores_that_train() -> None:
    rollout = scored([1, 1, 0, 1, NAN, 1, NAN, NAN], [0, 0, 1, 1, 2, 2, 3, 3])
    assert varied_groups(rollout, ["main"]).tolist() == [1]
    assert varied_groups(rollout, ["other"]).tolist() == []
    assert varied_groups(rollout, ["other", "main"]).tolist() == [1]


def test_the_first_groups_that_differ_are_kept() -> None:
    rollout = scored([1, 1, 0, 1, 1, 0, 2, 1], [0, 0, 1, 1, 2, 2, 3, 3])
    assert keep_varied(rollout, ["main"], 2).groups.tolist() == [1, 1, 2, 2]
    equal = scored([1, 1, 1, 1], [0, 0, 1, 1])
    assert keep_varied(equal, ["main"], 2) is equal


@pytest.mark.parametrize(("rounds", "made", "kept"), [(5, 2, 3), (1, 1, 2), (0, 0, 1)])
def test_rounds_go_on_until_there_are_enough(rounds: int, made: int, kept: int) -> None:
    drawn: list[int] = []

    def draw(number: int) -> Rollout:
        drawn.append(number)
        more = scored([1, 1, 0, 1], [0, 0, 1, 1])
        return replace(more, groups=more.groups + 2 * number, index=more.index + 4 * number)

    first = scored([1, 1, 0, 1], [0, 0, 1, 1])
    found, metrics = resample(
        first, draw, ["main"], groups=3, rounds=rounds, hardware=Local(device="cpu")
    )
    assert drawn == list(range(1, made + 1))
    assert metrics == {"resample/rounds": made, "resample/groups": kept}
    assert found.index.tolist() == list(range(4 * (made + 1)))


def test_samples_of_different_rounds_share_no_comparison_and_no_tree() -> None:
    def drawn() -> Rollout:
        node = torch.tensor([[0, 0], [0, 1], [2, 2], [2, 3]])
        tree = Tree(node=node, step=torch.zeros(4, 1), log_prob=torch.zeros(4, 1))
        rewards = scored([0.0, 1.0, 10.0, 20.0], [0, 0, 1, 1])
        return replace(rewards, comparison_group=torch.tensor([0, 0, 2, 2]), tree=tree)

    rounds = append_rollouts([renumbered(drawn(), number, 2, 2) for number in range(3)])
    assert rounds.index.tolist() == [*range(12)]
    compared = require(rounds.comparison_group, "comparison groups").tolist()
    assert [len(set(compared[i : i + 4])) for i in (0, 4, 8)] == [2, 2, 2]
    assert len(set(compared)) == 6
    node = require(rounds.tree, "a tree").node
    assert node[:, 0].tolist() == [0, 0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10]
    assert node[:, 1].tolist() == [*range(12)]


def test_an_iteration_learns_from_as_many_groups_that_differ(
    trainer: Callable[..., Trainer],  # noqa: F811
) -> None:
    made = trainer(reward=OddGroups(), resample=5)
    first = made.sample(0)
    rollout, metrics = made.score(first, iteration=0)
    # one of three groups differs in each round
    assert metrics["resample/rounds"] == 2
    assert rollout.groups.tolist() == [1] * 4 + [4] * 4 + [7] * 4
    assert (require(rollout.advantage, "advantages") != 0).any()
    assert len(set(rollout.index.tolist())) == 12
    # rewards are those of the first round alone, which is a fair sample
    plain = trainer(reward=OddGroups())
    _, unfiltered = plain.score(plain.sample(0))
    for name in ("reward/brightness/mean", "advantage/zero_groups"):
        assert metrics[name] == unfiltered[name]


def test_rounds_draw_other_prompts_and_other_numbers(
    trainer: Callable[..., Trainer],  # noqa: F811
) -> None:
    made = trainer(resample=1)
    first, second = made.sample(0), made.sample(0, number=1)
    assert first.prompts != second.prompts
    assert not torch.equal(require(first.latents, ""), require(second.latents, ""))
    assert second.index.tolist() == list(range(12, 24))
    again = made.sample(0, number=1)
    assert torch.equal(require(again.latents, ""), require(second.latents, ""))


def test_without_it_nothing_changes(trainer: Callable[..., Trainer]) -> None:  # noqa: F811
    def figures(**changes: Any) -> list[dict[str, float]]:
        logged = run(trainer(**changes))
        unlike = ("time/", "memory/", "resample/")
        return [{k: v for k, v in m.items() if not k.startswith(unlike)} for m in logged]

    assert figures() == figures(resample=3)  # every group differs


def test_rounds_of_prompts_of_other_lengths_are_appended(gpt2_folder: Path) -> None:
    from rlfactory.dynamics.token import Token

    model = CausalLM(torch.device("cpu"), path=str(gpt2_folder))
    parts = []
    for prompts in (["This"], ["A film that is much longer"]):
        ids, mask = model.encode(prompts)
        tokens = model.rollout(ids, mask, Token(length=5), torch.full((1, 5), 0.3))
        index = torch.zeros(1, dtype=torch.int64)
        parts.append(Rollout(prompts, [{}], index, index, tokens=tokens))
    found = require(append_rollouts(parts).tokens, "tokens").measured()
    for row, part in enumerate(parts):
        own, tokens = found.part(slice(row, row + 1)), require(part.tokens, "tokens")
        assert torch.equal(own.prompt, tokens.prompt)
        assert torch.equal(own.prompt_mask, tokens.prompt_mask)
