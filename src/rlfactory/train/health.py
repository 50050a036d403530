"""Health monitor: warnings with advice when the metrics of a run look like a known failure."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, pstdev

from rlfactory.train.components import Metrics
from rlfactory.train.evaluation.evaluator import Evaluation
from rlfactory.train.listeners import Iteration, Listener

Values = Mapping[str, float | None]
Rule = Callable[[Sequence[Values], str], str | None]
"""From the iterations so far and the name of the score that trains: the advice, if any."""

LARGEST_RATIO = 10.0
"""The mean ratio at which TRL's PPO drops a batch; in healthy runs the largest ratio is below."""
LARGEST_MOVE = 0.5
"""Of `kl/approx`; likelihoods have then changed e-fold on average. PPO's targets are near 0.02."""
LIKE_ITERATIONS = 5
SHARE_LEFT = 0.25
"""Of the first entropy or diversity. GPT-2's entropy fell from 3.6 nats to 2 in healthy runs and to
0.6 in collapsed ones; the diversity of images fell below 0.1 of the first in collapsed runs, and
stayed above 0.3 where a reward likes plain images.
"""
RISE = 0.02
"""Of the loss of held-out rows, as a share of its lowest."""
ENDS = 3
"""Iterations that the first and the latest level are means over."""
WINDOW = 5
GROWTH = 4.0
"""Of `kl/reference` from one window to the next. In a policy that moves steadily it grows with the
square of time, at most 2.7-fold after the first two windows; in healthy runs it stayed below 2.2.
"""

FROM = frozenset({"time/iteration", "eval/loss/mean"})
"""Metrics of the lines that are read: of iterations, and of evaluations of the data."""
KEPT = 50
"""Iterations that are kept of the first and of the latest ones, more than any rule reads."""

log = logging.getLogger(__name__)


class HealthMonitor(Listener):
    """Checks the metrics of each iteration, and gives each kind of warning once in a run.

    Args:
        main: the name of the score that trains; empty where the data do.
        past: the lines of metrics.jsonl that a resumed run begins with.
        given: the warnings that were given before, by kind.
        say: shows a line; None: warnings go to the log alone.
    """

    def __init__(
        self,
        main: str,
        past: Sequence[Values],
        given: Mapping[str, str],
        say: Callable[[str], None] | None = None,
    ) -> None:
        self.main, self.given, self.say = main, dict(given), say
        self._history = [line for line in past if FROM.intersection(line)]
        del self._history[KEPT:-KEPT]

    def after_iteration(self, iteration: Iteration) -> None:
        self.observe(iteration.done, iteration.metrics)

    def after_evaluation(self, done: int, evaluation: Evaluation, metrics: Metrics) -> None:
        if "eval/loss/mean" in metrics:
            self.observe(done, metrics)

    def observe(self, done: int, metrics: Values) -> None:
        """Check the metrics after `done` iterations; new warnings are logged and shown."""
        self._history.append(metrics)
        del self._history[KEPT:-KEPT]  # or a long run would look through ever more of them
        for kind, rule in RULES.items():
            if kind not in self.given and (advice := rule(self._history, self.main)):
                self.given[kind] = f"after iteration {done}: {advice}"
                log.warning("%s", self.given[kind])
                if self.say is not None:
                    self.say(f"advice {self.given[kind]}")

    def state_dict(self) -> dict[str, str]:
        """The warnings given so far, by kind."""
        return dict(self.given)


def exploding_ratio(history: Sequence[Values], main: str) -> str | None:
    """The policy moves too far within an iteration."""
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
    """All samples, or all of each group, have the same reward, so there is nothing to learn."""
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
        " that makes finer distinctions"
    )


def collapsing_variety(history: Sequence[Values], main: str) -> str | None:
    """Entropy or diversity collapses: samples become alike; those of the data do not."""
    for name in ("policy/entropy", "diversity/pairwise", "diversity/distinct_2") if main else ():
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
    """Reward hacking: the reward rises while the KL divergence grows ever faster."""
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


def overfitting(history: Sequence[Values], main: str) -> str | None:
    """The loss of held-out rows rises while that of the rows in training falls."""
    held_out, losses = _series(history, "eval/loss/mean"), _series(history, "loss/policy")
    if main or min(len(held_out), len(losses)) < 2 or losses[-1] >= losses[0]:
        return None  # with a score that trains, `loss` would be another one's name
    if held_out[-1] <= min(held_out) + RISE * abs(min(held_out)):
        return None
    return (
        f"the loss of held-out rows rose from {min(held_out):.3g} to {held_out[-1]:.3g} while that"
        " in training fell: the data are learned by heart; take the best checkpoint (--best), and"
        " try fewer iterations or a smaller optimizer.lr"
    )


def cut_completions(history: Sequence[Values], main: str) -> str | None:
    """Completions of the data are cut."""
    cut = history[-1].get("data/cut")
    if not cut:
        return None
    return (
        f"{cut:.1%} of the completions of an iteration were cut, so that their end is not learned;"
        " shorten them, or raise algo.length as far as the model's context allows"
    )


def cut_prompts(history: Sequence[Values], main: str) -> str | None:
    """Prompts are longer than the text encoders read."""
    share = history[-1].get("prompts/cut")
    if not share:
        return None
    return (
        f"{100 * share:.3g} % of the samples have a prompt that is longer than the text encoder"
        " reads: it is cut, and prompts that differ later are one; log.txt names one: shorten them"
    )


def _is_rising(rewards: Sequence[float]) -> bool:
    """Whether the mean rose by more than two standard errors, estimated from the window before."""
    before, latest = _windows(rewards)
    error = pstdev(rewards[-2 * WINDOW : -WINDOW]) / math.sqrt(WINDOW)
    return latest > before + 2 * error


def _windows(values: Sequence[float]) -> tuple[float, float]:
    """The means of the second to last window, and of the last."""
    return fmean(values[-2 * WINDOW : -WINDOW]), fmean(values[-WINDOW:])


def _series(history: Sequence[Values], name: str) -> list[float]:
    return [value for line in history if (value := line.get(name)) is not None]


RULES: Mapping[str, Rule] = {
    "ratio": exploding_ratio,
    "zero_variance": equal_rewards,
    "collapse": collapsing_variety,
    "hacking": hacked_reward,
    "overfitting": overfitting,
    "cut": cut_completions,
    "cut_prompts": cut_prompts,
}
