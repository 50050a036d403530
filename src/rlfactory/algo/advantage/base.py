"""The contract of an advantage estimator: rewards in, one advantage for each sample out.

Keyword-only constructor parameters are its configuration (`conf/advantage/`); there are no run-time
arguments. Where the reward names `score_weights`, they replace the configured `weights`.

In each iteration `names` is called first, then the estimator itself, once, on the samples of all
ranks; `state_dict` is saved with every checkpoint.

A static method `validate(options, run)` may check options of its own, and with them those of the
run (`utils.types.Faults`). It is compiled from its source while planning, so it uses builtins and
what it imports itself, without torch.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from rlfactory.rollout import Rollout


class Advantage(ABC):
    """`A(r) = (r - b) / s`: reward r above a baseline b, in units of s.

    Attributes:
        grouped: Whether it compares the samples of one prompt; `group_size` must then be above 1.
        least_rewards: The option with how many rewards a prompt needs for statistics of its own;
            None where it has none over iterations.
    """

    grouped: ClassVar[bool]
    least_rewards: ClassVar[str | None] = None

    @abstractmethod
    def __call__(self, rollout: Rollout, main: str) -> Rollout:
        """Add advantages to a rollout.

        Args:
            rollout: B samples, with `rewards` `[B]` by score name, none of them NaN.
            main: The score to train on where the estimator's configuration names none.

        Returns:
            The rollout with `advantage` `[B]` float32. Samples without a learning signal may be
            left out; `Rollout.loss_weight` then scales the mean loss over the remaining ones.

        Raises:
            KeyError: `rollout.rewards` lacks one of the scores in `names(main)`.
        """

    def names(self, main: str) -> list[str]:
        """Names of the scores that train.

        Args:
            main: The reward's main score.

        Returns:
            Score names; a sample that lacks one of them is not trained on.
        """
        return [main]

    def state_dict(self) -> dict[str, Any]:
        """State to checkpoint.

        Returns:
            Plain values (numbers, strings, lists, dicts); empty for a stateless estimator.
        """
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state of a resumed run.

        Args:
            state: What `state_dict` returned.
        """
        del state
