"""From a frozen configuration to live objects."""

from pathlib import Path
from typing import Any

import pytest
import torch

from rlfactory.algo.advantage.group import GroupAdvantage
from rlfactory.algo.grpo import GRPO
from rlfactory.algo.nft import NFT
from rlfactory.config.overrides import compose
from rlfactory.config.plan import make_plan
from rlfactory.dynamics.sa_solver import SASolver
from rlfactory.dynamics.schedule import dynamic_shift, uniform_sigmas
from rlfactory.regularizer.kl_x import KLMean
from rlfactory.regularizer.sum import Sum
from rlfactory.reward.base import RewardError
from rlfactory.train.build import (
    build,
    build_optimizer,
    instantiate_group,
    known_prompts,
    learned_prompts,
    training_budget,
)
from rlfactory.train.sampling.image_sampler import ImageSampler
from rlfactory.utils.errors import ModelError


def config(*overrides: str) -> dict[str, Any]:
    composed = compose(["hardware=cpu", *overrides])
    return dict(make_plan(composed.values, composed.choices).config)


@pytest.mark.parametrize(
    ("words", "sets"),
    [
        ([], {"policy", "old", "ema"}),
        (["regularizer=kl_v"], {"policy", "old", "ema", "reference"}),
        (["algo=grpo"], {"policy", "ema"}),
        (["algo=grpo", "regularizer=kl_ema"], {"policy", "ema", "old"}),
        (["algo=grpo", "regularizer=kl_awm"], {"policy", "ema", "old", "reference"}),
        (["algo=grpo", "regularizer=kl_gaussian", "model.finetune=lora"], {"policy", "ema"}),
    ],
)
def test_only_the_weight_sets_that_are_needed_are_kept(words: list[str], sets: set[str]) -> None:
    weights = build(config(*words)).model.weights
    assert {key.split("/")[0] for key in weights.state_dict()} == sets


def test_the_optimiser_moves_what_is_trained_and_nothing_else() -> None:
    parts = build(config("model.finetune=lora", "optimizer.lr=2e-5"))
    (group,) = parts.optimizer.param_groups
    assert [id(p) for p in group["params"]] == [
        id(p) for p in parts.model.weights.parameters.values()
    ]
    assert group["lr"] == 2e-5


@pytest.mark.parametrize(
    ("words", "on_cpu", "on_cuda"),
    [
        ([], None, True),
        (["optimizer.fused=false"], False, False),
        (["optimizer.fused=true"], True, True),
    ],
)
def test_the_optimizer_is_fused_on_cuda_unless_told_otherwise(
    words: list[str], on_cpu: bool | None, on_cuda: bool
) -> None:
    for device, expected in (("cpu", on_cpu), ("cuda", on_cuda)):
        parameters = [{"params": [torch.nn.Parameter(torch.zeros(2))]}]
        optimizer = build_optimizer(config(*words), parameters, torch.device(device))
        assert optimizer.defaults["fused"] is expected


def test_parts_that_share_dynamics_share_one_object() -> None:
    parts = build(config("algo=grpo", "regularizer=kl_x", "dynamics.noise_level=0.3"))
    assert isinstance(parts.sampler, ImageSampler)
    assert isinstance(parts.algo, GRPO)
    assert isinstance(parts.regularizer, KLMean)
    assert parts.algo.dynamics is parts.sampler.dynamics is parts.regularizer.dynamics


def test_an_algorithm_on_samples_gets_the_times_and_the_schedule() -> None:
    parts = build(config("times=discrete", "times.count=3", "schedule.steps=6"))
    assert isinstance(parts.algo, NFT)
    assert isinstance(parts.sampler, ImageSampler)
    assert (parts.algo.times.count, len(parts.algo.sigmas)) == (3, 7)
    assert torch.equal(parts.algo.sigmas, parts.sampler.sigmas)


def test_a_fraction_of_the_noise_that_holds_too_few_steps_is_refused() -> None:
    # the plan does not know the model's shift, by which 0.3 of the noise is five of ten steps
    words = ["times=discrete", "times.space=sigma", "times.fraction=0.3"]
    build(config(*words, "times.count=5"))
    with pytest.raises(ModelError, match="lower the count"):
        build(config(*words, "times.count=6"))


def test_the_average_is_kept_only_where_it_is_read() -> None:
    assert "ema" in build(config("model=tiny_gpt2")).model.weights
    parts = build(config("model=tiny_gpt2", "evaluation.weights=policy"))
    assert "ema" not in parts.model.weights
    # an older run's checkpoint may bring one, which is then kept up
    assert list(parts.averages) == ["ema"]


def test_the_budget_is_the_roots() -> None:
    numbers = training_budget(config("seed=7", "group_size=6", "max_minutes=2"))
    assert (numbers.seed, numbers.group_size) == (7, 6)
    assert numbers.max_minutes == 2


@pytest.mark.parametrize(("words", "names"), [([], ["ema", "old"]), (["algo=grpo"], ["ema"])])
def test_a_set_that_is_kept_has_its_average(words: list[str], names: list[str]) -> None:
    parts = build(config(*words, "ema.decay=0.5", "old.interval=3"))
    assert list(parts.averages) == names
    assert parts.averages["ema"].decay == 0.5
    if "old" in names:
        old = parts.averages["old"]
        assert (old.schedule, old.clock, old.update, old.interval) == (
            "nft_1",
            "step",
            "iteration",
            3,
        )


@pytest.mark.parametrize(
    ("words", "std", "clip"),
    [
        ([], "global", None),
        (["algo=grpo"], "group", 5.0),
        (["algo=grpo", "advantage=global"], "global", 5.0),
        (["algo=nft", "advantage=group", "advantage.clip=2"], "group", 2),
    ],
)
def test_an_algorithm_has_the_advantage_that_was_chosen(
    words: list[str], std: str, clip: float | None
) -> None:
    advantage = build(config(*words)).algo.advantage
    assert isinstance(advantage, GroupAdvantage)
    assert (advantage.std, advantage.clip, advantage.eps) == (std, clip, 1e-4)


def test_evaluations_may_take_other_steps() -> None:
    values = config("schedule.steps=4", "evaluation.steps=9")
    sampler = build(values).sampler
    assert isinstance(sampler, ImageSampler)
    assert (len(sampler.sigmas), len(sampler.evaluation_sigmas)) == (5, 10)


def test_timesteps_other_than_the_pipelines_are_told(caplog: pytest.LogCaptureFixture) -> None:
    build(config("model=tiny_sd", "algo=ddpo"))
    assert "scheduler" not in caplog.text
    build(config("model=tiny_sd", "algo=ddpo", "schedule.steps_offset=0", "window=all"))
    assert "schedule.steps_offset=1 follows it" in caplog.text


def test_make_hands_over_what_a_constructor_names_by_position() -> None:
    nodes = {"window": {"_target_": "rlfactory.dynamics.window.FixedSteps", "steps": [1]}}
    assert instantiate_group(nodes, "window", device=torch.device("cpu"), seed=3).chosen == [1]


def test_samplers_follow_the_models_process() -> None:
    parts = build(config("dynamics=sa_solver", "schedule.shift=dynamic", "schedule.steps=3"))
    assert isinstance(parts.sampler, ImageSampler)
    assert isinstance(parts.sampler.dynamics, SASolver)
    assert parts.sampler.dynamics.forward_process is parts.model.forward_process
    # latents of 8 x 8, each a token
    assert parts.model.resolution.tokens == 64
    expected = uniform_sigmas(3, dynamic_shift(64))
    torch.testing.assert_close(parts.sampler.sigmas, expected)


def test_parts_inside_mappings_and_lists_are_made_and_handed_what_they_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "parts_of_mine.py").write_text(
        "def whole(seed, *, parts, several, plain):\n    return seed, parts, several, plain\n"
        "def part(device, *, size):\n    return device, size\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    part = {"_target_": "parts_of_mine.part", "size": 2}
    plain = {"several": [1, {"a": "text"}], "empty": {}}
    node = {
        "_target_": "parts_of_mine.whole",
        "parts": {"one": part},
        "several": [part, [part], 3],
        "plain": plain,
    }
    made = instantiate_group({"window": node}, "window", device="cpu", seed=3, dynamics=None)
    assert made == (3, {"one": ("cpu", 2)}, [("cpu", 2), [("cpu", 2)], 3], plain)


def test_terms_share_the_dynamics_of_the_run() -> None:
    step = "_target_: rlfactory.regularizer.kl_x.KLMean"
    price = "{_target_: rlfactory.regularizer.coefficient.Fixed, value: 0.5}"
    term = f"+regularizer.terms.steps={{{step}, coefficient: {price}}}"
    parts = build(config("algo=grpo", "regularizer=kl_awm", term))
    assert isinstance(parts.regularizer, Sum)
    assert list(parts.regularizer.terms) == ["reference", "old", "steps"]
    assert parts.regularizer.terms["steps"].dynamics is parts.algo.dynamics  # type: ignore[attr-defined]
    assert parts.regularizer.coefficients["kl/old/coefficient"].value == 1.0


@pytest.mark.slow
def test_an_evaluation_may_have_a_size_of_its_own() -> None:
    sampler = build(config("evaluation.size=32", "evaluation.steps=7")).sampler
    assert isinstance(sampler, ImageSampler)
    assert sampler.evaluation_shape == (16, 4, 4)
    assert len(sampler.evaluation_sigmas) == 8
    drawn = sampler.draw(["a red circle"], seed=0, stream="evaluation")
    assert drawn.images is not None
    assert drawn.images.shape == (1, 3, 32, 32)
    odd = config("evaluation.size=32")
    with pytest.raises(ModelError, match="size=30"):
        build({**odd, "evaluation": {**odd["evaluation"], "size": 30}})


@pytest.mark.parametrize(("lines", "count"), [(3, 4), (100, 8)])
def test_prompts_with_an_end_are_known_before_a_run_begins(
    tmp_path: Path, lines: int, count: int
) -> None:
    """All of a short file; of a long one those that the iterations draw. The held-out ones too."""
    for name, number in (("train", lines), ("judge", 2)):
        (tmp_path / f"{name}.txt").write_text("\n".join(f"{name} {i}" for i in range(number)))
    words = ["prompts=file", "reward=compressibility", f"prompts.path={tmp_path}/train.txt"]
    few = ["iterations=3", "prompts_per_iteration=2", "evaluation.prompts=1"]
    values = config(*words, f"prompts.eval_path={tmp_path}/judge.txt", *few)
    prompts = instantiate_group(values, "prompts")
    found = known_prompts(values, prompts)
    drawn = {p.text for i in range(3) for p in prompts.draw(2, seed=0, iteration=i)}
    assert drawn | {"judge 0"} <= set(found)
    assert len(found) == len(set(found)) == (lines + 1 if lines == 3 else len(drawn) + 1)
    assert len(found) <= count
    # rows of data are checked by the same rule: what is not drawn may be terabytes of pictures
    rows = [p.text for p in learned_prompts(values, prompts)]
    assert {*rows} == ({*prompts.texts()} if lines == 3 else drawn)


def test_prompts_without_an_end_are_not_known() -> None:
    values = config()
    prompts = instantiate_group(values, "prompts")
    assert known_prompts(values, prompts) == ()
    assert [*learned_prompts(values, prompts)] == []


@pytest.mark.parametrize("place", ["path", "eval_path"])
def test_a_reward_refuses_prompts_before_a_model_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (tmp_path / "good.jsonl").write_text('{"prompt": "a", "include": []}\n' * 3)
    (tmp_path / "bad.jsonl").write_text('{"prompt": "a", "include": []}\n{"prompt": "b"}\n')
    files = {"path": "good", "eval_path": "good"} | {place: "bad"}
    words = [f"prompts.{key}={tmp_path}/{name}.jsonl" for key, name in files.items()]
    values = config("prompts=file", "reward=shapes", *words)
    monkeypatch.setattr("rlfactory.train.build.PromptCache", None)
    with pytest.raises(RewardError, match="'b': its metadata lacks include, which Shapes reads"):
        build(values)
