import pytest
import torch

from rlfactory.prompts.base import Prompt
from rlfactory.reward.base import RewardError, check_scores
from rlfactory.reward.combine import Combine
from rlfactory.reward.exact import Exact
from rlfactory.reward.pairwise import Pairwise, Preference, Wins, mean_wins

from .conftest import Length

NAN = torch.nan


def test_wins_are_the_mean_probability_over_the_others(samples_of):
    reward = Wins(judge=Preference(reward=Length(), unit=2.0))
    scores = reward.score(samples_of(["aaa", "b", "cc", "d"], groups=[0, 0, 0, 1]))
    check_scores(reward, scores, 4)
    p = torch.tensor([2.0, 1.0]).div(2).sigmoid()  # by how much "aaa" exceeds "b" and "cc"
    found = scores["length_wins"]
    torch.testing.assert_close(found[0], p.mean())
    torch.testing.assert_close(found[:3].sum(), torch.tensor(1.5))
    assert found[3] == 0.5


class Dictionary(Pairwise):
    """Prefers what stands earlier in a dictionary, and won't judge "?"; it sees one group only."""

    main = "dictionary"

    def prefers(self, samples):
        assert len(set(samples.groups.tolist())) == 1
        rows = [
            [NAN if "?" in (a, b) else float(a < b) for b in samples.texts] for a in samples.texts
        ]
        return torch.tensor(rows)


def test_any_judge_of_two_is_a_reward(samples_of):
    reward = Wins(judge=Dictionary())
    texts, groups = ["b", "x", "a", "c", "?", "y"], [0, 1, 0, 0, 0, 1]
    found = reward.score(samples_of(texts, groups=groups))["dictionary_wins"]
    expected = torch.tensor([0.5, 1, 1, 0, NAN, 0])
    torch.testing.assert_close(found, expected, equal_nan=True)


def test_the_diagonal_is_not_read():
    assert mean_wins(torch.tensor([[1.0, 0.25], [0.75, 1.0]])).tolist() == [0.25, 0.75]


def test_the_reward_that_is_compared_says_what_it_scores_and_checks_prompts(samples_of):
    wins = Wins(judge=Preference(reward=Exact()))
    assert wins.metadata == ("answer",)
    with pytest.raises(RewardError, match="lacks answer"):
        wins.check_prompts([Prompt("1 + 1 =", {})])
    both = Combine(of=["wins", "length"], parts={"wins": wins, "length": Length()})
    assert both.media == "texts"
