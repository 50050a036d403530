"""Warnings with advice: what the metrics of a run look like when it goes wrong, each told once."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, pstdev

Values = Mapping[str, float | None]
Rule = Callable[[Sequence[Values], str], str | None]
"""Of the iterations so far and the name of the reward that trains: what to say, if anything."""

LARGEST_RATIO = 10.0
"""The mean ratio at which TRL's PPO drops a batch; in healthy runs the largest one stays below."""
LARGEST_MOVE = 0.5
"""Of `kl/approx`: likelihoods have changed e-fold on average; PPO's usual targets are near 0.02."""
LIKE_ITERATIONS = 5
SHARE_LEFT = 0.25
"""Of entropy or diversity. GPT-2's runs fell from 3.6 nats to 2 when well and to 0.6 when
collapsed; pictures that end alike fall below 0.1, those that only become plainer stay above 0.3.
"""
ENDS = 3
"""Iterations that the first and the latest level are means of."""
WINDOW = 5
GROWTH = 4.0
"""From one window to the next. A policy that moves steadily has a divergence that grows with the
square of time, at most 2.7-fold after the first two windows; healthy runs stayed below 2.2.
"""

log = logging.getLogger(__name__)


class Adviser:
    """Hears of each iteration and says what it thinks, of each kind once in a run.

    `past` are the lines of earlier sittings, and `given` is what was said then, by kind.
    """

    def __init__(self, main: str, past: Sequence[Values], given: Mapping[str, str]) -> None:
        self.main, self.given = main, dict(given)
        self._history = [self._watched(line) for line in past if "time/iteration" in line]

    def hear(self, done: int, metrics: Values, tell: Callable[[str], None]) -> None:
        """One more iteration; what is new goes to `tell` and into the log."""
        self._history.append(self._watched(metrics))
        for kind, rule in RULES.items():
            if kind not in self.given and (said := rule(self._history, self.main)) is not None:
                self.given[kind] = f"after iteration {done}: {said}"
                log.warning("%s", self.given[kind])
                tell(f"advice {self.given[kind]}")

    def state_dict(self) -> dict[str, str]:
        """What was said, fit for JSON."""
        return dict(self.given)

    def _watched(self, metrics: Values) -> Values:
        names = (*WATCHED, f"reward/{self.main}/mean", f"reward/{self.main}/std")
        return {name: metrics[name] for name in names if name in metrics}


def exploding_ratio(history: Sequence[Values], main: str) -> str | None:
    """The policy goes too far in an iteration for its samples to tell anything."""
    del main
    for name, limit in (("ratio/max_dev", LARGEST_RATIO), ("kl/approx", LARGEST_MOVE)):
        value = history[-1].get(name)
        if value is not None and value > limit:
            return (
                f"{name} is {value:.3g}, above {limit:g}: the policy moves too far from the one"
                " that sampled; try a smaller optimizer.lr, fewer epochs or updates_per_iteration,"
                " or a target_kl"
            )
    return None


def equal_rewards(history: Sequence[Values], main: str) -> str | None:
    """There is nothing to learn from samples that are worth the same."""
    latest = history[-LIKE_ITERATIONS:]
    if len(latest) < LIKE_ITERATIONS:
        return None
    spread = f"reward/{main}/std"
    if all(line.get(spread) == 0 for line in latest):
        who = "all samples"
    elif all(line.get("advantage/zero_groups") == 1 for line in latest):
        who = "all samples of a prompt"
    else:
        return None
    return (
        f"{who} have had the same {main} for {LIKE_ITERATIONS} iterations, so there is nothing to"
        " learn from; try other prompts, a larger group_size, more noise in sampling, or a reward"
        " that tells finer differences"
    )


def collapsing_variety(history: Sequence[Values], main: str) -> str | None:
    """The policy has come to say one thing only."""
    del main
    for name in ("policy/entropy", "diversity/pairwise", "diversity/distinct_2"):
        values = _series(history, name)
        if len(values) < 2 * ENDS:
            continue
        first, latest = fmean(values[:ENDS]), fmean(values[-ENDS:])
        if latest < SHARE_LEFT * first:
            return (
                f"{name} fell from {first:.3g} to {latest:.3g}: samples become alike; try a larger"
                " regularizer coefficient, a smaller optimizer.lr, or algo.entropy_weight where the"
                " algorithm has it, and look at the samples"
            )
    return None


def hacked_reward(history: Sequence[Values], main: str) -> str | None:
    """The reward rises while the policy runs away from what it was."""
    rewards, moved = _series(history, f"reward/{main}/mean"), _series(history, "kl/reference")
    if min(len(rewards), len(moved)) < 3 * WINDOW:
        return None
    before, latest = _windows(moved)
    if not 0 < GROWTH * before < latest or not _is_rising(rewards):
        return None
    return (
        f"kl/reference grew from {before:.3g} to {latest:.3g} within {2 * WINDOW} iterations while"
        f" {main} rose: the reward may be won by what it does not mean to reward; look at the"
        " samples, and try a larger regularizer coefficient, stop.kl, or an earlier checkpoint"
    )


def _is_rising(rewards: Sequence[float]) -> bool:
    """By more than two standard errors of a window's mean, as the one before it scatters."""
    before, latest = _windows(rewards)
    error = pstdev(rewards[-2 * WINDOW : -WINDOW]) / math.sqrt(WINDOW)
    return latest > before + 2 * error


def _windows(values: Sequence[float]) -> tuple[float, float]:
    """The means of the last window but one, and of the last."""
    return fmean(values[-2 * WINDOW : -WINDOW]), fmean(values[-WINDOW:])


def _series(history: Sequence[Values], name: str) -> list[float]:
    return [value for line in history if (value := line.get(name)) is not None]


RULES: Mapping[str, Rule] = {
    "ratio": exploding_ratio,
    "zero_variance": equal_rewards,
    "collapse": collapsing_variety,
    "hacking": hacked_reward,
}
WATCHED = (
    *("ratio/max_dev", "kl/approx", "advantage/zero_groups", "kl/reference"),
    *("policy/entropy", "diversity/pairwise", "diversity/distinct_2"),
)
