import pytest

from rlfactory.reward.base import RewardError
from rlfactory.reward.ops.patterns import compiled, last_match


def test_the_last_match_says_its_first_group_or_all():
    assert last_match(compiled(r"\d", "k"), "a1b2", 1.0) == "2"
    assert last_match(compiled(r"a(\d)?", "k"), "a1a", 1.0) == ""
    assert last_match(compiled(r"\d", "k"), "ab", 1.0) is None


def test_limits_and_invalid_patterns():
    with pytest.raises(TimeoutError):
        last_match(compiled("(a|aa)+$", "k"), "a" * 60 + "b", 0.05)
    with pytest.raises(RewardError, match=r"k=\["):
        compiled("[", "k")
