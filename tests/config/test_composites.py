"""Rewards and loggers that are named in a list: typed, planned, frozen, built and amended."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from rlfactory.cli import app
from rlfactory.config.checks import combined
from rlfactory.config.overrides import override_frozen, plan_from_words
from rlfactory.config.plan import make_plan
from rlfactory.config.problems import PlanError, fix_command
from rlfactory.reward.base import RewardError
from rlfactory.reward.combine import Combine
from rlfactory.reward.jpeg import Incompressibility
from rlfactory.run.loggers import TensorBoard, Wandb
from rlfactory.train.build import build, instantiate_group
from rlfactory.train.process import worker
from rlfactory.train.scoring.build import build_rewards
from rlfactory.train.scoring.subprocess_reward import SubprocessReward

CPU = torch.device("cpu")
TWO = ["reward=combine", "reward.of=[shapes,incompressibility]"]
QUALITY = "reward.parts.incompressibility.quality=50"


def test_names_become_parts_with_their_options() -> None:
    node = plan_from_words(*TWO, QUALITY, "reward.weights.incompressibility=0.01").config["reward"]
    assert [*node["parts"]] == ["shapes", "incompressibility"]
    assert node["parts"]["shapes"] == plan_from_words("reward=shapes").config["reward"]
    own = plan_from_words("reward=incompressibility", "reward.quality=50").config["reward"]
    assert node["parts"]["incompressibility"] == own
    assert node["weights"] == {"incompressibility": 0.01}


@pytest.mark.parametrize(
    "words", [[*TWO, QUALITY], [QUALITY, *reversed(TWO)], [*TWO, f"+{QUALITY}"]]
)
def test_the_order_does_not_matter_nor_does_a_plus(words: Sequence[str]) -> None:
    assert plan_from_words(*words).config["reward"]["parts"]["incompressibility"]["quality"] == 50


def test_a_part_of_ones_own_begins_with_its_target() -> None:
    target = "rlfactory.reward.jpeg.Incompressibility"
    part = f"reward.parts.small._target_={target}"
    node = plan_from_words("reward=combine", "reward.of=[small]", part).config["reward"]
    assert node["parts"] == {"small": {"_target_": target}}


@pytest.mark.parametrize(
    ("words", "key", "said", "remedy"),
    [
        (["reward.of=[shape]"], "reward.of", "Did you mean shapes", "reward.of=[shapes]"),
        (["reward.of=[]"], "reward.of", "is empty", "reward.of=[compressibility]"),
        (["reward.of=shapes"], "reward.of", "allowed is a list", "reward.of=[shapes]"),
        (["reward.of=[shapes,shapes]"], "reward.of", "twice", "reward.of=[shapes]"),
        (["reward.of=[shapes]", QUALITY], "reward.parts.incompressibility", "names no", None),
        ([f"{QUALITY[:-2]}0"], "reward.parts.incompressibility.quality", ">= 1", None),
        (
            ["reward.parts.shapes.blob=fault"],
            "reward.parts.shapes.blob",
            "Did you mean",
            "reward.parts.shapes.blobs",
        ),
        (["reward.parts.shapes=3"], "reward.parts.shapes", "allowed is options", None),
        (["reward.of=[shapes,length]"], "reward.parts.length", "scores texts", None),
        (["reward.of=[shapes,combine]"], "reward.parts.combine", "made of parts itself", None),
        (["prompts=file", "prompts.path=HERE"], "reward.parts.shapes", "reads include", None),
        (
            ["reward.weights.shape=2"],
            "reward.weights.shape",
            "Did you mean shapes",
            "reward.weights.shapes",
        ),
        (["reward.weights={shapes: 0, incompressibility: 0}"], "reward.weights", "nothing", None),
        (["reward.weights.shapes=much"], "reward.weights", "each a number", None),
        (["reward.gates.shapes.ocr=1"], "reward.gates.shapes.ocr", "names no ocr", None),
        (["reward.gates.shapes=1"], "reward.gates", "a mapping", None),
        (["reward.clips.shapes=[1,0]"], "reward.clips.shapes", "[lower, upper]", None),
        (["reward.clips.shapes=[null,null]"], "reward.clips.shapes", "[lower, upper]", None),
        (["reward.clips.shapes=[1]"], "reward.clips.shapes", "[lower, upper]", None),
        (["reward.normalise=some"], "reward.normalise", "none | group", None),
        (["reward.normalise={shape: group}"], "reward.normalise.shape", "names no shape", None),
        (["reward.aggregate=gdpo"], "advantage", "over several rewards", "advantage=gdpo"),
        (
            ["reward.aggregate=gdpo", "advantage=gdpo", "reward.normalise=group"],
            "reward.normalise",
            "gdpo normalises",
            "reward.normalise=none",
        ),
        (
            ["reward.aggregate=gdpo", "advantage=gdpo", "advantage.weights={shapes: 1}"],
            "advantage.weights",
            "reward.weights",
            "advantage.weights=null",
        ),
        (["eval_rewards.of=[lenght]"], "eval_rewards.of", "length", "eval_rewards.of=[length]"),
        (["eval_rewards.of=[length]"], "eval_rewards.parts.length", "scores texts", None),
        (["eval_rewards.parts.shapes.blobs=x"], "eval_rewards.parts.shapes", "names no", None),
        (["scoring.background=threads"], "scoring.background", "thread | process", None),
    ],
)
def test_what_is_wrong_is_said_with_what_to_type(
    words: list[str], key: str, said: str, remedy: str | None, tmp_path: Any
) -> None:
    (tmp_path / "prompts.txt").write_text("a cat\n")
    words = [word.replace("HERE", f"{tmp_path}/prompts.txt") for word in words]
    with pytest.raises(PlanError) as refused:
        plan_from_words(*TWO, *words)
    found = {problem.key: problem for problem in refused.value.problems}
    assert key in found, refused.value
    assert said in found[key].message
    if remedy is not None:
        assert found[key].fix == remedy


@pytest.mark.parametrize(
    ("model", "kind"),
    [("tiny_sd3", "image_function.ImageFunction"), ("tiny_gpt2", "function.Function")],
)
def test_a_function_of_ones_own_is_typed_as_the_message_says(
    model: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rewards.py").write_text("def correct(prompts, completions):\n    return [1.0]\n")
    Path("images.py").write_text("def correct(images, prompts, metadata):\n    return [1.0]\n")
    words = [f"model={model}", "reward=combine", "reward.of=[correct]"]
    with pytest.raises(PlanError) as refused:
        plan_from_words(*words)
    assert "a function of your own is FILE.py:correct" in refused.value.problems[0].message
    file = "images.py" if model == "tiny_sd3" else "rewards.py"
    typed = f"reward.of=[{file}:correct]"
    part = plan_from_words(*words[:2], typed).config["reward"]["parts"]["correct"]
    assert part["_target_"] == f"rlfactory.reward.{kind}"


def test_loggers_are_named_in_a_list_too() -> None:
    words = ["logger=several", "logger.of=[wandb,tensorboard]", "logger.parts.wandb.mode=offline"]
    node = plan_from_words(*words).config["logger"]
    assert [*node["parts"]] == ["wandb", "tensorboard"]
    assert node["parts"]["wandb"]["mode"] == "offline"
    assert node["parts"]["wandb"]["tags"] == []
    made = instantiate_group(plan_from_words(*words).config, "logger")
    assert [type(part) for part in made.parts.values()] == [Wandb, TensorBoard]


@pytest.mark.parametrize(
    ("words", "key", "said", "remedy"),
    [
        (["logger.of=[wanbd]"], "logger.of", "no logger wanbd", "logger.of=[wandb]"),
        (["logger.of=[x7]"], "logger.of", "no logger x7", "rlfactory list logger"),
        ([], "logger.of", "is empty", "logger.of=[wandb,tensorboard]"),
        (["logger.of=[jsonl,jsonl]"], "logger.of", "twice", "logger.of=[jsonl]"),
        (["logger.of=[several]"], "logger.parts.several", "is made of parts itself", None),
        (
            ["logger.of=[jsonl]", "logger.parts.wandb.mode=offline"],
            "logger.parts.wandb",
            "names no wandb",
            "logger.of=[jsonl,wandb]",
        ),
        (["logger.of=[wandb]", "logger.parts.wandb.moed=x"], "logger.parts.wandb.moed", "", None),
        (["logger.of=[wandb]", "logger.parts.wandb.mode=x"], "logger.parts.wandb.mode", "", None),
    ],
)
def test_what_is_wrong_with_several_loggers_is_said(
    words: list[str], key: str, said: str, remedy: str | None
) -> None:
    with pytest.raises(PlanError) as refused:
        plan_from_words("logger=several", *words)
    (problem,) = refused.value.problems
    assert problem.key == key
    assert said in problem.message
    if remedy is not None:
        assert problem.fix == remedy


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["logger=tensorboard"], "logger"),
        (["logger=several", "logger.of=[wandb,tensorboard]"], "logger.parts.tensorboard"),
    ],
)
def test_a_logger_that_is_not_installed_names_its_extra(
    words: list[str], key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(combined, "find_spec", lambda name: None)
    with pytest.raises(PlanError) as refused:
        plan_from_words(*words)
    (problem,) = refused.value.problems
    assert problem.key == key
    assert "pip install 'rlfactory[tensorboard]'" in problem.message


def test_a_folder_of_that_name_is_no_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "bare_folder").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    traits = {"logger": {"package": "bare_folder", "extra": None}}
    (problem,) = combined.require_installed({"logger": {}}, traits)
    assert "type pip install bare_folder" in problem.message


def test_the_mended_command_is_the_one_that_was_meant() -> None:
    typed = ["reward=combine", "reward.of=[shape]"]
    with pytest.raises(PlanError) as refused:
        plan_from_words(*typed)
    (problem,) = refused.value.problems
    assert fix_command(problem, typed) == "rlfactory reward=combine 'reward.of=[shapes]'"


def test_texts_and_tokens_too() -> None:
    words = ["model=gpt2", "reward=combine", "reward.of=[length,repetition]"]
    assert plan_from_words(*words).config["reward"]["parts"].keys() == {"length", "repetition"}
    with pytest.raises(PlanError, match="an advantage of its own"):
        plan_from_words(*words, "reward.aggregate=gdpo")


def test_the_same_reward_is_made_once_however_often_it_is_named() -> None:
    judged = ["eval_rewards.of=[shapes,compressibility,incompressibility,again]"]
    again = "eval_rewards.parts.again"
    target = "rlfactory.reward.jpeg.Incompressibility"
    same = [f"{again}._target_={target}", f"{again}.unit=1.0", f"{again}.quality=50"]
    config = plan_from_words(*TWO, QUALITY, *judged, *same).config
    made, others = build_rewards(config, CPU)
    assert isinstance(made, Combine)
    assert others["shapes"] is made.parts["shapes"]
    assert others["again"] is made.parts["incompressibility"]
    assert others["incompressibility"] is not made.parts["incompressibility"], "other options"
    assert isinstance(others["incompressibility"], Incompressibility)
    plain, others = build_rewards(plan_from_words("eval_rewards.of=[shapes]").config, CPU)
    assert others["shapes"] is plain


@pytest.mark.slow
def test_each_part_may_live_in_a_process_of_its_own() -> None:
    process = ["scoring.background=process", "scoring.timeout=30"]
    made, others = build_rewards(
        plan_from_words(*TWO, *process, "eval_rewards.of=[shapes]").config, CPU
    )
    assert isinstance(made, Combine)
    assert all(isinstance(part, SubprocessReward) for part in made.parts.values())
    assert (made.media, made.metadata) == ("images", ("include",))
    assert others["shapes"] is made.parts["shapes"]
    for part in made.parts.values():
        part.close()  # type: ignore[attr-defined]


def test_a_reward_may_ask_for_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Incompressibility, "wants_subprocess", True)
    made, _ = build_rewards(plan_from_words("reward=incompressibility").config, CPU)
    assert isinstance(made, SubprocessReward)
    made.close()
    none = plan_from_words("reward=incompressibility", "scoring.background=none").config
    assert isinstance(build_rewards(none, CPU)[0], Incompressibility)


def test_gdpo_gives_the_advantage_its_weights() -> None:
    words = ["hardware=cpu", "algo=grpo", "advantage=gdpo", "reward.aggregate=gdpo"]
    clip = "reward.clips.incompressibility=[0,3]"
    config = plan_from_words(*TWO, *words, clip, "reward.weights.shapes=2").config
    algo = build(config).algo
    assert algo.reward_names("combined") == ["shapes", "incompressibility_counted"]
    assert config["advantage"]["weights"] is None, "the frozen configuration is as it was typed"


def test_a_device_that_is_not_there() -> None:
    config = plan_from_words("hardware=cpu", "scoring.device=cuda:77").config
    with pytest.raises(RewardError, match=r"^scoring\.device=cuda:77 can't be used: "):
        build(config)


def test_a_frozen_run_can_be_judged_by_others() -> None:
    frozen = yaml.safe_load(
        plan_from_words(*TWO, QUALITY, "eval_rewards.of=[compressibility]").frozen()
    )
    amended = override_frozen(
        frozen, ["eval_rewards.of=[length,shapes]", "reward.parts.shapes.blobs=ignored"]
    )
    assert amended.problems == []
    assert [*amended.values["eval_rewards"]["parts"]] == ["length", "shapes"]
    assert amended.values["reward"]["parts"]["shapes"]["blobs"] == "ignored"
    assert amended.values["reward"]["parts"]["incompressibility"]["quality"] == 50
    values = {key: value for key, value in frozen.items() if key != "choices"}
    assert make_plan(values, frozen["choices"]).config["reward"] == frozen["reward"]
    fewer = override_frozen(frozen, ["reward.of=[shapes]"]).values["reward"]["parts"]
    assert [*fewer] == ["shapes"]


@pytest.mark.slow
def test_several_runs_each_with_their_parts(tmp_path: Any, monkeypatch: Any) -> None:
    ran: list[dict[str, Any]] = []

    def run(arguments: Any) -> int:
        ran.append(yaml.safe_load((arguments.run / "config.yaml").read_text())["reward"])
        return 0

    monkeypatch.setattr(worker, "run_main_process", run)
    monkeypatch.setattr("sys.argv", ["rlfactory"])
    monkeypatch.chdir(tmp_path)
    several = "reward.of=[shapes],[shapes,compressibility]"
    assert app.dispatch(["-m", "reward=combine", several, "reward.parts.shapes.blobs=ignored"]) == 0
    assert [[*node["parts"]] for node in ran] == [["shapes"], ["shapes", "compressibility"]]
    assert all(node["parts"]["shapes"]["blobs"] == "ignored" for node in ran)


@pytest.mark.slow
def test_training_on_a_sum_and_judging_by_another(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["iterations=1", "prompts_per_iteration=2", "group_size=2", "sample_batch=2"]
    few = ["schedule.steps=2", "evaluation.prompts=2", "updates_per_iteration=1", "times.count=1"]
    words = ["hardware=cpu", *TWO, QUALITY, "reward.weights.incompressibility=0.01"]
    normalised = ["reward.normalise={incompressibility: group}"]
    judged = ["eval_rewards.of=[compressibility]", "run_dir=run"]
    assert app.dispatch([*words, *normalised, *judged, *small, *few]) == 0
    summary = (tmp_path / "run" / "summary.md").read_text()
    for name in ("combined", "shapes", "incompressibility", "compressibility"):
        assert f"| {name} |" in summary


def test_the_console_takes_lists_of_rewards(here: Callable[..., Any]) -> None:
    shown = here("check", *TWO, QUALITY, "eval_rewards.of=[compressibility]")
    assert shown.returncode == 0, shown.stderr
    again = here("check", "reward=combine", "reward.of=[shapes,bogus]")
    assert again.returncode == 2
    assert "there is no reward bogus" in again.stderr


def test_a_list_of_loggers_is_several() -> None:
    plan = plan_from_words("logger=[tensorboard,jsonl]")
    assert {*plan.config["logger"]["parts"]} == {"tensorboard", "jsonl"}
    assert plan.choices["logger"] == "several"
