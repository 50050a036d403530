"""What a reward raised is said where the run stops for it."""

import logging

import pytest
import torch

from rlfactory.reward.ops.python_function import call_with_timeout
from rlfactory.train.scoring.reward_errors import REWARD_ERRORS
from rlfactory.train.scoring.scores import require_scored
from rlfactory.utils.errors import TrainingError

NONE = {"mine": torch.tensor([torch.nan, torch.nan])}


def fail() -> None:
    raise TypeError("mine() takes 1\n positional argument")


def test_the_first_exception_is_the_cause() -> None:
    REWARD_ERRORS.take()
    call_with_timeout(fail, 5.0, "mine", 2)
    logging.getLogger("rlfactory.reward.other").error("and then %d more", 3)
    with pytest.raises(TrainingError, match="from reward mine, more than") as raised:
        require_scored(NONE, ["mine"], 0.05)
    assert isinstance(raised.value.__cause__, TypeError)


def test_an_error_of_an_earlier_batch_is_not() -> None:
    call_with_timeout(fail, 5.0, "mine", 2)
    require_scored({"mine": torch.zeros(2)}, ["mine"], 0.05)
    with pytest.raises(TrainingError, match="from reward mine, more than"):
        require_scored(NONE, ["mine"], 0.05)


def test_a_message_without_an_exception() -> None:
    REWARD_ERRORS.take()
    logging.getLogger("rlfactory.reward.remote").error("no answer from %s", "there")
    logging.getLogger("rlfactory.train").error("something else")
    assert REWARD_ERRORS.take() == ("no answer from there", None)
    assert REWARD_ERRORS.take() == ("", None)
    logging.getLogger("rlfactory.reward.remote").error("no answer from %s", "there")
    with pytest.raises(TrainingError, match=r"mine \(no answer from there\), more than"):
        require_scored(NONE, ["mine"], 0.05)
