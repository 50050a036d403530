import pytest
import torch
import yaml

from rlfactory.config.options import packaged_folder
from rlfactory.prompts.base import Prompt
from rlfactory.reward.base import RewardError, check_scores, directions
from rlfactory.reward.jpeg import Compressibility
from rlfactory.reward.rank import Rank, group_ranks
from rlfactory.train.build import instantiate_group

from .conftest import Length

NAN = torch.nan


def ranks(scores, groups=None):
    groups = [0] * len(scores) if groups is None else groups
    return group_ranks(torch.tensor(scores), torch.tensor(groups)).tolist()


def test_ranks_are_those_of_flow_factory():
    """`argsort().argsort() / n`, where no two are equal."""
    scores = torch.randn(24, generator=torch.Generator().manual_seed(0))
    found = group_ranks(scores, torch.zeros(24, dtype=torch.long))
    assert torch.equal(found, scores.argsort().argsort().float() / 24)


def test_ranks_are_counted_within_a_group_in_any_order():
    scores, groups = [3.0, 0.1, 1.0, 0.3, 2.0, 0.2], [7, -1, 7, -1, 7, -1]
    assert ranks(scores, groups) == pytest.approx([2 / 3, 0, 0, 2 / 3, 1 / 3, 1 / 3])


def test_equal_scores_share_a_rank_and_the_sum_stays():
    assert ranks([1.0, 2.0, 2.0, 3.0]) == [0, 1.5 / 4, 1.5 / 4, 3 / 4]
    assert ranks([5.0] * 4) == [1.5 / 4] * 4


def test_ranks_see_order_alone():
    scores = torch.randn(9, generator=torch.Generator().manual_seed(0))
    groups = torch.arange(9) % 2
    assert torch.equal(group_ranks(scores.exp() * 1e3, groups), group_ranks(scores, groups))


def test_a_failed_score_has_no_rank_and_does_not_count():
    found = ranks([NAN, 1.0, 2.0, NAN, 9.0], [0, 0, 0, 1, 2])
    assert found[1:3] == [0, 0.5]
    assert [value != value for value in found] == [True, False, False, True, False]
    assert found[4] == 0


def test_any_reward_can_be_ranked(samples_of):
    reward, samples = (
        Rank(reward=Length()),
        samples_of(["aaa", "b", "", "dd", "e"], groups=[0, 0, 0, 0, 1]),
    )
    scores = reward.score(samples)
    check_scores(reward, scores, 5)
    assert reward.main == "length_rank"
    torch.testing.assert_close(
        scores["length_rank"], torch.tensor([2 / 3, 0, NAN, 1 / 3, 0]), equal_nan=True
    )
    assert torch.equal(scores["length"][:2], torch.tensor([3.0, 1.0]))


def test_pickscores_ranks_are_built_from_its_file(save_clip, drawn):
    config = yaml.safe_load((packaged_folder("conf") / "reward/pickscore_rank.yaml").read_text())
    config["reward"]["reward"] |= {"path": str(save_clip(act="gelu")), "processor": None}
    reward = instantiate_group(config, "reward", device=torch.device("cpu"))
    samples = drawn(["a cat", "a dog"] * 4)
    scores = reward.score(samples)
    check_scores(reward, scores, 8)
    assert reward.main == "pickscore_rank"
    assert sorted(scores["pickscore_rank"][::2].tolist()) == [0, 0.25, 0.5, 0.75]
    expected = group_ranks(scores["pickscore"], samples.groups)
    assert torch.equal(scores["pickscore_rank"], expected)


def test_prompts_must_bring_what_the_ranked_reward_requires():
    class Tagged(Length):
        metadata = ("tag",)

    ranked = Rank(reward=Tagged())
    assert (ranked.media, ranked.metadata) == ("texts", ("tag",))
    with pytest.raises(RewardError, match="metadata lacks tag"):
        ranked.check_prompts([Prompt("a", {})])


def test_what_is_better_of_the_ranked_scores_is_kept():
    made = Rank(reward=Compressibility())
    assert directions(made) == {
        "compressibility_rank": "higher",
        "compressibility": "higher",
        "jpeg_kb": "lower",
    }
