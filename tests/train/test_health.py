import logging
from collections.abc import Sequence

import pytest

from rlfactory.train.health import (
    KEPT,
    HealthMonitor,
    Rule,
    Values,
    collapsing_variety,
    cut_completions,
    cut_prompts,
    equal_rewards,
    exploding_ratio,
    hacked_reward,
    overfitting,
)

MAIN = "taste"


def history(**series: Sequence[float | None]) -> list[Values]:
    """Lines of metrics, from series by their names with `_of_` for the slash."""
    names = [name.replace("_of_", "/") for name in series]
    columns = zip(*series.values(), strict=True)
    return [dict(zip(names, values, strict=True)) for values in columns]


def say(rule: Rule, **series: Sequence[float | None]) -> str | None:
    return rule(history(**series), MAIN)


def test_a_ratio_that_explodes() -> None:
    said = say(exploding_ratio, ratio_of_max_dev=[0.1, 11.0])
    assert said is not None
    assert said.startswith("ratio/max_dev is 11, above 10")
    assert "optimizer.lr" in said
    assert "kl/approx is 0.6" in str(say(exploding_ratio, kl_of_approx=[0.6]))
    # the largest of healthy runs on words
    assert say(exploding_ratio, ratio_of_max_dev=[7.7], kl_of_approx=[0.12]) is None
    assert say(exploding_ratio, ratio_of_max_dev=[None]) is None
    assert say(exploding_ratio, ratio_of_max_dev=[50.0, 0.1]) is None, "it was told when it was"


def test_rewards_that_are_all_the_same() -> None:
    assert "all samples have had the same taste" in str(
        say(equal_rewards, **{"reward/taste/std": [0.3, 0, 0, 0, 0, 0]})
    )
    assert "all samples of a prompt" in str(say(equal_rewards, advantage_of_zero_groups=[1] * 5))
    assert say(equal_rewards, advantage_of_zero_groups=[1] * 4) is None
    assert say(equal_rewards, advantage_of_zero_groups=[1, 1, 0.9, 1, 1]) is None
    assert say(equal_rewards, **{"reward/taste/std": [0, 0, 0, 0, 0.1]}) is None
    assert say(equal_rewards, **{"reward/other/std": [0] * 5}) is None


@pytest.mark.parametrize("name", ["policy/entropy", "diversity/pairwise", "diversity/distinct_2"])
def test_samples_that_become_alike(name: str) -> None:
    said = say(collapsing_variety, **{name: [3.6, 3.5, 3.4, 1.0, 0.6, 0.6, 0.6]})
    assert str(said).startswith(f"{name} fell from 3.5 to 0.6: samples become alike")
    assert say(collapsing_variety, **{name: [3.6, 3.5, 3.4, 2.0, 2.0, 2.0]}) is None
    assert say(collapsing_variety, **{name: [3.6, 3.5, 3.4, 0.1, 0.1]}) is None, "too early"
    assert say(collapsing_variety, **{name: [3.6, 3.5, 3.4, 0.1, 3.0, 3.0]}) is None, "one of them"
    assert say(collapsing_variety, **{name: [0.0] * 9}) is None


RISING = [0.01 * n for n in range(40)]
EXPLODING = [*[0.01] * 10, 0.02, 0.04, 0.08, 0.16, 0.32]


def hacking(rewards: Sequence[float], moved: Sequence[float | None]) -> str | None:
    return say(hacked_reward, **{"reward/taste/mean": rewards, "kl/reference": moved})


def test_a_reward_that_rises_while_the_policy_runs_away() -> None:
    said = str(hacking(RISING[:15], EXPLODING))
    assert said.startswith("kl/reference grew from 0.01 to 0.124 within 10 iterations while taste")
    assert hacking(RISING[:14], EXPLODING[1:]) is None, "too early to tell"
    assert hacking([0.5] * 15, EXPLODING) is None, "the reward does not rise"
    assert hacking(RISING[:15][::-1], EXPLODING) is None
    assert say(hacked_reward, **{"reward/taste/mean": RISING}) is None
    scattered = [*[0.0, 1.0] * 5, 0.6, 0.7, 0.6, 0.7, 0.6]
    assert hacking(scattered, EXPLODING) is None, "it may be chance"


@pytest.mark.parametrize("power", [1, 2])
def test_a_policy_that_moves_steadily_runs_not_away(power: int) -> None:
    moved = [1e-4 * n**power for n in range(40)]
    assert all(hacking(RISING[:n], moved[:n]) is None for n in range(1, 41))


def test_prompts_that_are_cut() -> None:
    assert "25 % of the samples" in str(say(cut_prompts, prompts_of_cut=[0.25]))
    assert say(cut_prompts, prompts_of_cut=[None]) is None


def test_each_kind_is_told_once_in_a_run(caplog: pytest.LogCaptureFixture) -> None:
    said: list[str] = []
    monitor = HealthMonitor(MAIN, [], {}, said.append)
    with caplog.at_level(logging.WARNING):
        for done in (1, 2, 3):
            monitor.observe(done, {"ratio/max_dev": 20.0 * (done - 1)})
    assert len(said) == 1
    assert said[0].startswith("advice after iteration 2: ratio/max_dev is 20")
    assert said[0].endswith(monitor.given["ratio"])
    assert [record.getMessage() for record in caplog.records] == [monitor.given["ratio"]]
    again = HealthMonitor(MAIN, [], monitor.state_dict(), said.append)
    again.observe(4, {"ratio/max_dev": 90.0})
    assert len(said) == 1


def test_what_earlier_attempts_saw_counts() -> None:
    said: list[str] = []
    spread = {"reward/taste/std": 0.0, "unknown": 3.0}
    past: list[Values] = [{**spread, "time/iteration": 1.0}, {"eval/taste/mean": 1.0}] * 4
    monitor = HealthMonitor(MAIN, past, {}, said.append)
    monitor.observe(5, spread)
    assert [text.split(":")[0] for text in said] == ["advice after iteration 5"]


def test_a_long_run_keeps_few_iterations_and_warns_as_before() -> None:
    monitor = HealthMonitor("taste", [], {})
    for done in range(1000):
        monitor.observe(done, {"policy/entropy": 3.0, "reward/taste/mean": 1.0})
    assert len(monitor._history) == 2 * KEPT
    for done in range(1000, 1005):
        monitor.observe(done, {"policy/entropy": 0.1})
    assert "policy/entropy fell from 3" in monitor.given["collapse"]
    past = [{"time/iteration": 1.0, "policy/entropy": 3.0}] * 1000
    assert len(HealthMonitor("taste", past, {})._history) == 2 * KEPT


def test_a_loss_of_held_out_rows_that_rises_again() -> None:
    held_out, losses = [3.0, 2.0, 1.9, 2.1], [2.9, 2.0, 1.0, 0.5]
    lines = [
        line
        for shown, loss in zip(held_out, losses, strict=True)
        for line in ({"eval/loss/mean": shown}, {"loss/policy": loss})
    ]
    said = overfitting(lines, "")
    assert str(said).startswith("the loss of held-out rows rose from 1.9 to 2.1 while that in")
    assert overfitting(lines[:6], "") is None, "it falls"
    assert overfitting(lines, "loss") is None, "a reward of that name"


def test_completions_that_are_cut() -> None:
    assert "25.0% of the completions" in str(cut_completions(history(data_of_cut=[0, 0.25]), ""))
    assert cut_completions(history(data_of_cut=[0.25, 0]), "") is None


def test_the_data_give_no_advice_on_samples() -> None:
    lines = history(policy_of_entropy=[3.6, 3.5, 3.4, 0.6, 0.6, 0.6])
    assert collapsing_variety(lines, MAIN) is not None
    assert collapsing_variety(lines, "") is None
