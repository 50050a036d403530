"""Every option of every group: described, explained, composed, and in step with its class."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlfactory.config.key_reference import file_reference
from rlfactory.config.options import first_comment, options, packaged_folder
from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError
from rlfactory.config.schema.root import COMPONENTS, GROUPS
from rlfactory.config.schema.signature import read_signature

CONF = packaged_folder("conf")
FILES = sorted(path for path in CONF.glob("*/**/*.yaml"))
PAIRS = Path(__file__).parents[1] / "data" / "pairs.jsonl"
IMAGE_PAIRS = PAIRS.with_name("image_pairs.jsonl")
NEEDS = {
    "prompts/file": ["prompts.path=prompts.jsonl", "reward=compressibility"],
    "prompts/datasets": ["prompts.path=prompts.jsonl", "reward=compressibility"],
    "prompts/animals": ["reward=compressibility"],
    "prompts/activities": ["reward=compressibility"],
    "prompts/imagenet_animals": ["reward=compressibility"],
    "prompts/signs": ["reward=ocr"],
    "prompts/words": ["reward=ocr"],
    "prompts/digits": ["reward=compressibility"],
    "prompts/abilities": ["reward=compressibility"],
    "prompts/preferences": ["reward=compressibility"],
    "prompts/pick_a_pic": ["reward=compressibility"],
    "prompts/hpdv2": ["reward=compressibility"],
    "model/causal_lm": ["model.path=zoo:tiny_gpt2"],
    "model/qwen25_vl": [
        *("model.path=owner/qwen2.5-vl", "prompts.path=prompts.jsonl", "reward=sentiment"),
        "prompts.image_column=null",
    ],
    "reward/none": [
        *(
            "algo=sft",
            "model=gpt2",
            "prompts=file",
            "prompts.path=prompts.jsonl",
            "algo.column=null",
        )
    ],
    "algo/sft": [*("model=gpt2", "prompts=file", "prompts.path=prompts.jsonl", "algo.column=null")],
    "algo/opd": ["algo.teachers=[zoo:tiny_digits]"],
    "algo/opd_token": ["model=tiny_gpt2", "algo.teachers=[zoo:tiny_gpt2]"],
    "algo/draft": ["reward=jpeg_standin"],
    "algo/refl": ["reward=jpeg_standin"],
    "algo/dpo": [*("model=gpt2", "prompts=file", f"prompts.path={PAIRS}")],
    "algo/diffusion_dpo_offline": ["prompts=file", f"prompts.path={IMAGE_PAIRS}"],
    "experiment/four_models": [
        *("model.path=owner/sft", "model.value_path=owner/rm", "reward.path=owner/rm"),
        "prompts.path=prompts.jsonl",
    ],
    "experiment/openai_tldr": ["reward.path=owner/rm"],
    "experiment/openai_cnndm": ["reward.path=owner/rm", "prompts.path=prompts.jsonl"],
    "regularizer/gardo": ["regularizer.others=[shapes_strict]"],
    "regularizer/kl_x": ["algo=grpo"],
    "regularizer/kl_gaussian": ["algo=grpo"],
    "regularizer/kl_flow_grpo": ["algo=grpo"],
    "regularizer/kl_behaviour": ["algo=vgrpo"],
    "logger/several": ["logger.of=[wandb,tensorboard]"],
    "reward/ocr": ["prompts=signs"],
    "reward/image_class": ["prompts=digits", "reward.path=zoo:digits_gold"],
    "reward/geneval": ["prompts=geneval"],
    "reward/geneval_flow_grpo": ["prompts=geneval"],
    "reward/combine": ["reward.of=[shapes,incompressibility]"],
    "reward/image_function": ["reward.function=judge.py:see"],
    "reward/function": ["model=gpt2", "reward.function=judge.py:judge"],
    "reward/diversity": ["model=gpt2", "group_size=2"],
    "reward/regex": ["model=gpt2", "reward.pattern=a+"],
    "reward/exact": ["model=gpt2", "prompts=arithmetic"],
    "reward/math": ["model=gpt2", "prompts=arithmetic"],
    "reward/instructions": ["model=gpt2", "prompts=instructions"],
    "reward/python": ["model=gpt2", "prompts=file", "prompts.path=prompts.jsonl"],
    "reward/reward_model": ["model=gpt2", "reward.path=owner/name"],
    "reward/remote": ["reward.url=http://127.0.0.1:8000"],
    "reward/remote_text": ["model=gpt2", "reward.url=http://127.0.0.1:8000"],
    "reward/unifiedreward": ["reward.url=http://127.0.0.1:8000/v1"],
    "reward/geneval2": [
        "prompts=geneval2",
        "reward.url=http://127.0.0.1:8000/v1",
        "reward.model=m",
    ],
    "reward/vlm_judge": ["reward.url=http://127.0.0.1:8000/v1", "reward.model=m"],
    "reward/llm_judge": ["model=gpt2", "reward.url=http://127.0.0.1:8000/v1", "reward.model=m"],
    "reward/edit_judge": [
        *("reward.url=http://127.0.0.1:8000/v1", "reward.model=m"),
        *("model=flux_kontext", "prompts=edits"),
    ],
    "prompts/edits": ["model=flux_kontext"],
    "prompts/geneval2": ["reward=compressibility"],
    "reward/motion": ["model=wan"],
    "reward/video_function": ["model=wan", "reward.function=judge.py:see"],
    "reward/video_judge": [
        *("reward.url=http://127.0.0.1:8000/v1", "reward.model=m"),
        "model=wan",
    ],
    "reward/llava_bertscore": ["reward.url=http://127.0.0.1:8000/v1", "reward.model=m"],
}
"""What else must be typed."""
OF_TEXTS = {
    *("algo/ppo", "algo/rloo", "algo/grpo_token", "dynamics/token", "prompts/movies"),
    *("algo/dapo", "algo/dr_grpo", "algo/gspo", "algo/cispo", "algo/online_dpo", "algo/raft"),
    *("algo/reinforce_pp", "algo/reinforce_pp_baseline", "algo/dppo", "algo/cppo", "algo/drpo"),
    *("algo/vespo", "algo/gmpo", "algo/maxrl"),
    *("regularizer/kl_token", "regularizer/kl_token_adaptive", "prompts/randomwalks"),
    *("prompts/instructions", "prompts/instructions_kinds", "prompts/instructions_phrasings"),
    *("prompts/arithmetic", "engine/transformers", "engine/vllm_server"),
    *("reward/sentiment", "reward/negative_sentiment", "reward/length", "reward/repetition"),
    *("reward/lexicon", "reward/randomwalks", "reward/coherence", "reward/json"),
}
NOT_INSTALLED = {
    *("optimizer/adamw_8bit", "engine/vllm", "model/smollm2"),
    *("logger/trackio", "logger/mlflow", "logger/swanlab"),
    *("recipe/smollm2_dpo", "recipe/smollm2_grpo_token", "recipe/smollm2_sft"),
}
"""What needs a package that the tests do without: their own tests have stand-ins, or the marker
`real`."""
UNREADABLE = {"optimizer/adamw_8bit"}
"""Whose class is in that package."""
OF_NOISE = {"dynamics/ddim", "schedule/leading", "schedule/trailing"}


def name_of(path: Path) -> str:
    return path.relative_to(CONF).with_suffix("").as_posix()


def group_of(path: Path) -> str:
    return path.relative_to(CONF).parts[0]


def option_of(path: Path) -> str:
    """As it is typed after `GROUP=`, with the folder it may have of its own."""
    return name_of(path).partition("/")[2]


@cache
def component(path: Path) -> Mapping[str, Any]:
    node = yaml.load(path.read_text(), yaml.CSafeLoader).get(group_of(path), {})
    assert isinstance(node, dict)
    return node


def test_every_group_has_a_folder() -> None:
    assert {group_of(path) for path in FILES} == set(GROUPS)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_file_begins_with_what_it_is(path: Path) -> None:
    first, second = path.read_text().splitlines()[:2]
    assert first == "# @package _global_"
    assert second == f"# {first_comment(path)}"
    assert len(second) > 8
    assert not second.endswith(".")


COMMENTED = [CONF / "config.yaml", *(p for p in FILES if group_of(p) in COMPONENTS)]


@pytest.mark.parametrize("path", COMMENTED, ids=name_of)
def test_every_value_has_a_comment(path: Path) -> None:
    sections = re.split(r"^(?=\w)", path.read_text(), flags=re.M)
    for section in (s for s in sections if not s.startswith(("defaults:", "hydra:"))):
        for line in section.splitlines():
            if re.match(r"\s*[a-z]\w*: \S", line):
                assert " # " in line, line


def _needed(path: Path) -> list[str]:
    name = name_of(path)
    if name in OF_NOISE:
        return ["model=sd14"]
    if group_of(path) == "window":
        return ["algo=grpo"]
    if group_of(path) == "recipe" and path.stem != "none":
        return _pair(path.stem)
    return ["model=gpt2"] if name in OF_TEXTS else NEEDS.get(name, [])


def _pair(recipe: str) -> list[str]:
    """The words of a recipe FAMILY_ALGO_REWARD, the last two of which may be missing."""
    words = []
    for group in ("model", "algo", "reward"):
        fitting = [name for name in options(group) if f"{recipe}_".startswith(f"{name}_")]
        if fitting:
            option = max(fitting, key=len)
            words += [f"{group}={option}", *NEEDS.get(f"{group}/{option}", [])]
            recipe = recipe.removeprefix(option).removeprefix("_")
    return words


OF_COMPONENTS = [p for p in FILES if group_of(p) in COMPONENTS and name_of(p) not in UNREADABLE]
OURS = [p for p in OF_COMPONENTS if component(p)["_target_"].startswith("rlfactory.")]


@pytest.mark.parametrize("path", OF_COMPONENTS, ids=name_of)
def test_keys_are_those_of_the_class(path: Path) -> None:
    node = dict(component(path))
    assert set(node) - {"_target_"} <= set(read_signature(node["_target_"]).parameters)


@pytest.mark.parametrize("path", OURS, ids=name_of)
def test_a_file_repeats_no_default(path: Path) -> None:
    for node in _nodes(component(path)):
        parameters = read_signature(node.pop("_target_")).parameters
        assert [key for key, value in node.items() if value == parameters[key].plain_default] == []


def _nodes(value: object) -> Iterator[dict[str, Any]]:
    """The nodes with a target in a file's component: its own and those inside."""
    for inner in value.values() if isinstance(value, Mapping) else ():
        yield from _nodes(inner)
    if isinstance(value, Mapping) and "_target_" in value:
        yield dict(value)


def test_a_node_inside_has_all_options_of_its_class() -> None:
    words = ["model=gpt2", "regularizer=kl_token_adaptive", "regularizer.coefficient.clip=0.1"]
    coefficient = plan_from_words(*words).config["regularizer"]["coefficient"]
    assert (coefficient["clip"], coefficient["high"]) == (0.1, 10.0)
    path = options("regularizer")["kl_token_adaptive"]
    assert file_reference(path)["regularizer.coefficient.clip"].default == "0.2"


@pytest.mark.parametrize("path", OURS, ids=name_of)
def test_every_option_is_composed_and_explained(path: Path) -> None:
    group = group_of(path)
    node = component(path)
    wanted = [f"{group}.{name}" for name in read_signature(node["_target_"]).parameters]
    nested = [key for key, value in node.items() if isinstance(value, dict) and value]
    wanted = [key for key in wanted if key.partition(".")[2] not in nested]
    found = file_reference(path)
    assert [key for key in wanted if key not in found] == []
    assert [key for key in wanted if not found[key].meaning] == []


def test_all_options_are_listed() -> None:
    for group in GROUPS:
        assert options(group) == {option_of(p): p for p in FILES if group_of(p) == group}
    assert "peer/nft" in options("experiment")


def test_an_algorithm_brings_its_companions() -> None:
    assert plan_from_words("algo=grpo").choices["dynamics"] == "flow_sde"
    assert plan_from_words("algo=nft").choices["dynamics"] == "ode"


def test_a_model_brings_its_companions(tmp_path: Path) -> None:
    made = plan_from_words("model=tiny_sd3").choices
    assert (made["algo"], made["reward"], made["prompts"]) == ("nft", "shapes", "shapes")
    made = plan_from_words("model=gpt2").choices
    assert (made["algo"], made["dynamics"], made["regularizer"]) == ("ppo", "token", "kl_token")
    assert (made["reward"], made["prompts"]) == ("negative_sentiment", "movies")
    assert "schedule" not in made
    assert "advantage" not in made


@pytest.mark.parametrize(
    "words",
    [
        ["algo=nft", "regularizer=kl_v"],
        ["model=tiny_sd3", "algo=grpo"],
        ["model=gpt2", "algo=rloo", "regularizer=none", "reward=length"],
        ["algo=grpo", "dynamics=flow_sde", "dynamics.noise_level=0.3"],
        ["algo=grpo", "regularizer=kl_gaussian", "reward=compressibility"],
    ],
    ids=str,
)
def test_the_command_line_wins_in_any_order(words: list[str]) -> None:
    forward, backward = plan_from_words(*words), plan_from_words(*reversed(words))
    assert forward.config == backward.config
    assert forward.choices == backward.choices
    for word in words:
        key, _, value = word.partition("=")
        if key in GROUPS:
            assert forward.choices[key] == value


@pytest.mark.parametrize("words", [["algo=grpo", "dynamics=ode"], ["dynamics=ode", "algo=grpo"]])
def test_a_companion_that_was_replaced_is_missed(words: list[str]) -> None:
    with pytest.raises(PlanError) as refused:
        plan_from_words(*words)
    assert [problem.key for problem in refused.value.problems] == ["dynamics"]


def test_frozen_configuration_is_the_plan() -> None:
    made = plan_from_words("algo=grpo", "optimizer.lr=1e-5", "run_dir=x")
    frozen = yaml.safe_load(made.frozen())
    assert frozen.pop("choices") == dict(made.choices)
    assert frozen == {**made.config, "run_dir": "x"}
    assert frozen["optimizer"]["lr"] == 1e-5


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        (["schedule=leading"], ["schedule"]),
        (["algo=grpo", "dynamics=ddim"], ["dynamics"]),
        (["algo=grpo", "dynamics=dpm_solver"], ["dynamics"]),
        (["algo=grpo", "dynamics=sa_solver"], ["dynamics"]),
        (["model=gpt2", "dynamics=ode"], ["dynamics"]),
        (["model=gpt2", "dynamics=sa_solver"], ["dynamics"]),
        (
            ["algo=grpo", "dynamics=cps", "regularizer=kl_gaussian", "window=all"]
            + ["window.skip_last=0"],
            ["regularizer"],
        ),
        (
            ["algo=grpo", "dynamics=cps", "dynamics.log_prob_of=gaussian", "window=random_subset"],
            ["dynamics.log_prob_of"],
        ),
        (["schedule.shift=fast"], ["schedule.shift"]),
        (["dynamics=cps", "dynamics.noise_level=1.5"], ["dynamics.noise_level"]),
    ],
    ids=str,
)
def test_samplers_that_do_not_fit_are_refused(words: list[str], keys: list[str]) -> None:
    with pytest.raises(PlanError) as refused:
        plan_from_words(*words)
    assert [problem.key for problem in refused.value.problems] == keys


@pytest.mark.parametrize(
    "words",
    [
        ["algo=grpo", "dynamics=cps", "dynamics.log_prob_of=gaussian", "window=random_contiguous"],
        ["algo=grpo", "dynamics=cps", "window=all", "window.skip_last=0"],
        ["algo=grpo", "dynamics=dance_sde", "regularizer=kl_gaussian"],
        ["algo=nft", "dynamics=dpm_solver", "schedule.shift=dynamic"],
        ["algo=nft", "dynamics=sa_solver", "schedule.shift=1.5"],
    ],
    ids=str,
)
def test_samplers_that_fit_make_a_plan(words: list[str]) -> None:
    assert plan_from_words(*words).config["dynamics"]
