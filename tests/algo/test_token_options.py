"""Options of token policies in the whole algorithm: advantages, masks, means, presets."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from rlfactory.algo.ppo import PPO
from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError
from rlfactory.dynamics.token import Token
from rlfactory.rollout import Rollout, Tokens
from rlfactory.utils.errors import TrainingError
from rlfactory.utils.pytree import require

TOKEN = Token(length=4)
LENGTHS = torch.tensor([4, 2, 1, 4])
SCORES = torch.tensor([1.0, 3.0, -1.0, 1.0])


def rollout() -> Rollout:
    """Two groups of two; of the two responses of full length only the last one has an end."""
    mask = torch.arange(4) < LENGTHS[:, None]
    ids, zeros = torch.zeros(4, 4, dtype=torch.int64), torch.zeros(4, 4)
    ended = torch.tensor([False, True, True, True])
    prompt = torch.ones(4, 1, dtype=torch.bool)
    value = torch.full((4, 4), 7.0)  # a value head that no baseline but `value` may read
    tokens = Tokens(ids[:, :1], prompt, ids, mask, ended, zeros, value)
    index, groups = torch.arange(4), torch.tensor([0, 0, 1, 1])
    return Rollout([""] * 4, [{}] * 4, groups, index, tokens=tokens, rewards={"main": SCORES})


def advantages(penalty: Tensor | None = None, **options: Any) -> Tensor:
    options = {"normalize": "none", "baseline": "group", **options}
    done = PPO(TOKEN, **options).compute_advantages(replace(rollout(), penalty=penalty), "main")
    return require(done.advantage, "advantages")


def test_golden_standard_deviations() -> None:
    """By hand: groups (1, 3) and (-1, 1) have a population std of 1, all scores one of sqrt(2)."""
    unit = torch.tensor([-1.0, 1.0, -1.0, 1.0])
    for options, scale in (
        ({"std": "none"}, 1.0),
        ({"std": "group"}, 1 / 1.0001),
        ({"std": "global"}, 1 / (2**0.5 + 1e-4)),
        ({"std": "group", "whiten_unbiased": True}, 1 / (2**0.5 + 1e-4)),
    ):
        found = advantages(**options)
        torch.testing.assert_close(found[:, 0], scale * unit)
        assert found[2].tolist() == [found[2, 0].item(), 0, 0, 0]


def test_golden_maxrl_advantages() -> None:
    """By hand: of scores (1, 0), (0, 0) divided by their mean of 1/2, plus 1e-4; and of a half."""
    scores = {"main": torch.tensor([1.0, 0.0, 0.0, 0.0])}
    algo = PPO(TOKEN, baseline="group", std="mean", normalize="none")
    found = algo.compute_advantages(replace(rollout(), rewards=scores), "main").advantage
    expected = torch.tensor([0.5 / 0.5001, -0.5 / 0.5001, 0.0, 0.0])
    torch.testing.assert_close(require(found, "advantages")[:, 0], expected)
    with pytest.raises(TrainingError, match="a score is -1"):
        algo.compute_advantages(rollout(), "main")


def test_golden_reinforce_pp_advantages() -> None:
    """The score less the penalties still to come, whitened over all tokens; no value is read."""
    penalty = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.5, 0.5, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]])
    raw = advantages(penalty, baseline="none", lam=1.0)
    expected = [[0.0, 0.1, 0.3, 0.6], [2, 2.5, 0, 0], [-2, 0, 0, 0], [1, 1, 1, 1]]
    torch.testing.assert_close(raw, torch.tensor(expected))
    mask = require(rollout().tokens, "tokens").mask
    white = advantages(penalty, baseline="none", lam=1.0, normalize="batch")
    std = raw[mask].std(unbiased=False)
    torch.testing.assert_close(white[mask], (raw[mask] - raw[mask].mean()) / std)


def test_advantages_of_groups_are_whitened_over_tokens() -> None:
    mask = require(rollout().tokens, "tokens").mask
    raw, white = advantages(std="none"), advantages(std="none", normalize="batch")
    expected = (raw[mask] - raw[mask].mean()) / raw[mask].std(unbiased=False)
    torch.testing.assert_close(white[mask], expected)


def test_long_responses_pay() -> None:
    """Over the last 2 of 4 tokens; the response of 2 tokens is at its beginning."""
    found = advantages(baseline="none", lam=1.0, overlong_buffer=0.5, overlong_penalty=2.0)
    assert found[:, 0].tolist() == pytest.approx([-1.0, 3.0, -1.0, -1.0])


def test_weights_are_of_the_whole_update_whatever_ranks_hold() -> None:
    algo = PPO(TOKEN, baseline="group", normalize="none", aggregation="sequence")
    weight = require(algo.normalise_update(rollout()).token_weight, "weights")
    torch.testing.assert_close(weight, 11 / (4 * LENGTHS.float()))
    masked = PPO(TOKEN, baseline="group", normalize="none", mask_truncated=True)
    weight = require(masked.normalise_update(rollout()).token_weight, "weights")
    torch.testing.assert_close(weight, torch.tensor([0, 11 / 7, 11 / 7, 11 / 7]))
    plain = PPO(TOKEN, baseline="group", normalize="none")
    assert plain.normalise_update(rollout()).token_weight is None


PRESETS: dict[str, dict[str, Any]] = {
    "dapo": {"clip_range": 0.2, "clip_high": 0.28, "aggregation": "token", "overlong_buffer": 0.2},
    "dr_grpo": {"std": "none", "aggregation": "constant", "clip_range": 0.2},
    "gspo": {"ratio": "sequence", "clip_range": 3e-4, "clip_high": 4e-4},
    "cispo": {"surrogate": "cispo", "clip_range": 1.0, "clip_high": 4.0, "aggregation": "token"},
    "dppo": {"surrogate": "dppo", "std": "none", "clip_range": 0.15, "aggregation": "constant"},
    "cppo": {"surrogate": "cppo", "clip_range": 0.15, "last_weight": 0.8, "prefix_budget": 0.02},
    "drpo": {"surrogate": "drpo", "std": "none", "clip_range": 12.5, "aggregation": "constant"},
    "vespo": {"surrogate": "vespo", "ratio": "product", "aggregation": "token"},
    "gmpo": {"surrogate": "gmpo", "clip_range": 0.4, "aggregation": "sequence"},
    "maxrl": {"std": "mean", "surrogate": "clip"},
    "reinforce_pp": {"baseline": "none", "lam": 1.0, "normalize": "batch"},
    "reinforce_pp_baseline": {"baseline": "group", "std": "none", "normalize": "batch"},
}


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("model", ["tiny_gpt2", "qwen3"])
def test_presets_are_as_published(name: str, model: str) -> None:
    config = plan_from_words(f"model={model}", f"algo={name}").config
    assert {key: config["algo"][key] for key in PRESETS[name]} == PRESETS[name]
    assert config["resample"] == (4 if name == "dapo" else 0)
    node = config["regularizer"]
    if name.startswith("reinforce_pp"):
        placed = ("loss", "k2") if name.endswith("baseline") else ("reward", "k1")
        assert (node["placement"], node["coefficient"]["value"]) == (placed[0], 0.01)
        assert node["estimator"] == placed[1] or model == "qwen3"
    else:
        assert node["_target_"].endswith("NoRegularizer")


@pytest.mark.parametrize(
    ("words", "key", "fix"),
    [
        ("algo=grpo_token algo.dual_clip=1.1", "algo.dual_clip", "algo.dual_clip=3"),
        ("algo=cispo algo.dual_clip=9", "algo.dual_clip", "algo.dual_clip=null"),
        ("algo=rloo algo.ratio=product", "algo.ratio", "algo.aggregation=sequence"),
        ("algo=gmpo algo.ratio=token", "algo.ratio", "algo.ratio=sequence"),
        ("algo=vespo algo.ratio=token", "algo.ratio", "algo.ratio=product"),
        ("algo=drpo algo.ratio=sequence", "algo.ratio", "algo.ratio=token"),
        ("algo=dppo algo.ratio_cap=0.9", "algo.ratio_cap", "algo.ratio_cap=20"),
        ("algo=maxrl algo.missing_end=replace", "algo.std", "algo.std=none"),
        (
            "algo=maxrl regularizer=kl_token regularizer.placement=reward regularizer.estimator=k1",
            *("algo.std", "algo.std=none"),
        ),
        ("algo=ppo resample=1", "group_size", "group_size=4"),
    ],
)
def test_options_that_do_not_fit_are_refused_with_a_fix(words: str, key: str, fix: str) -> None:
    with pytest.raises(PlanError) as caught:
        plan_from_words("model=tiny_gpt2", *words.split())
    (problem,) = caught.value.problems
    assert (problem.key, problem.fix) == (key, fix)
    plan_from_words("model=tiny_gpt2", *words.split(), fix)


def test_k1_in_the_loss_is_refused_unless_weighted_by_the_ratio() -> None:
    words = ("model=tiny_gpt2", "algo=grpo_token", "regularizer.estimator=k1")
    with pytest.raises(PlanError, match="zero in expectation"):
        plan_from_words(*words)
    plan_from_words(*words, "regularizer.weighting=ratio")


def test_grpo_on_a_language_model_is_grpo_token() -> None:
    plan = plan_from_words("model=tiny_gpt2", "algo=grpo", "algo.clip_high=0.28", "group_size=4")
    assert plan.choices["algo"] == "grpo_token"
    same = plan_from_words(
        "model=tiny_gpt2", "algo=grpo_token", "algo.clip_high=0.28", "group_size=4"
    )
    assert plan.config["algo"] == same.config["algo"]
    assert plan_from_words("model=tiny_sd3", "algo=grpo").choices["algo"] == "grpo"
