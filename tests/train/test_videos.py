"""A run on videos: what it writes, and what its rewards see."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from tiny_pipelines import *  # noqa: F403  (its fixtures)

from rlfactory import api
from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError
from rlfactory.report.summary import where_to_look
from rlfactory.reward.motion import Motion
from rlfactory.train.scoring.build import FrameMean, build_rewards

SHORT = [
    *("model=wan", "model.size=[32,48]", "model.frames=5", "model.text_tokens=16"),
    *("precision=fp32", "prompt_cache=null", "hardware=cpu", "prompts_per_iteration=2"),
    *("group_size=2", "schedule.steps=3", "evaluation.steps=3", "evaluation.prompts=4"),
    *("evaluation.grid=4", "micro_batch=4", "sample_batch=4", "reward=compressibility"),
]


@pytest.fixture(scope="module")
def run(wan_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Three iterations of GRPO."""
    folder = tmp_path_factory.mktemp("videos") / "run"
    words = [*SHORT, f"model.path={wan_folder}", "eval_rewards.of=[motion]", "optimizer.lr=0.01"]
    return api.train(*words, iterations=3, run_dir=str(folder))


def test_three_iterations_change_weights_and_are_scored(run: Any) -> None:
    lines = (run.path / "metrics.jsonl").read_text().splitlines()
    metrics = [json.loads(line) for line in lines]
    assert [m["iteration"] for m in metrics if "reward/compressibility/mean" in m] == [1, 2, 3]
    before, after = (json.loads(p.read_text())["scores"] for p in evaluations(run.path))
    assert before["motion"] != after["motion"]
    assert set(after) >= {"compressibility", "jpeg_kb", "motion", "flicker"}


def evaluations(folder: Path) -> list[Path]:
    return sorted((folder / "evaluations").glob("*.json"))


def test_an_evaluation_is_a_contact_sheet_and_a_gif(run: Any) -> None:
    samples = run.path / "samples"
    assert {path.name for path in samples.glob("eval_000003.*")} == {
        *("eval_000003.json", "eval_000003.png", "eval_000003.gif")
    }
    with Image.open(samples / "eval_000003.gif") as moving:
        assert moving.n_frames == 5
    with Image.open(samples / "strip" / "000003_0.png") as sheet:
        assert sheet.size == (2 * 48, 2 * 32)
    assert (samples / "strip.png").is_file()


def test_the_gif_is_named_at_the_end(run: Any) -> None:
    assert any(line.endswith("eval_000003.gif") for line in where_to_look(run.folder))


def test_samples_are_lists_of_frames_in_python_and_gifs_of_the_command(run: Any) -> None:
    videos = run.samples(["a cat", "a dog"])
    assert [len(video) for video in videos] == [5, 5]
    assert videos[0][0].size == (48, 32)


def test_image_rewards_of_videos_score_frames(wan_folder: Path) -> None:
    words = [*SHORT, f"model.path={wan_folder}", "scoring.frames=2", "reward=combine"]
    words += ["reward.of=[compressibility,motion]"]
    words.remove("reward=compressibility")
    reward, _ = build_rewards(plan_from_words(*words).config, torch.device("cpu"))
    parts: Any = reward
    assert isinstance(parts.parts["compressibility"], FrameMean)
    assert parts.parts["compressibility"].frames == 2
    assert isinstance(parts.parts["motion"], Motion)
    assert reward.media == "videos"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["model.frames=6"], "nearest 5 and 7"),
        (["model.size=[32,36]"], "nearest [32,32]"),
        (["model.size=[32,32,32]"], "has 3 edges"),
    ],
)
def test_what_the_model_cannot_make_is_refused(
    words: list[str], said: str, wan_folder: Path
) -> None:
    with pytest.raises(PlanError, match=said.replace("[", r"\[")):
        plan_from_words(*SHORT, f"model.path={wan_folder}", *words)


def test_a_reward_of_videos_is_not_for_images() -> None:
    with pytest.raises(PlanError, match="scores videos, and the model makes images"):
        plan_from_words("model=tiny_sd3", "reward=motion")


@pytest.mark.slow
def test_another_family_learns_from_a_reward_of_videos(ltx_folder: Path, tmp_path: Path) -> None:
    words = [*SHORT, f"model.path={ltx_folder}", "model.size=[32,64]", "reward=motion"]
    words[0] = "model=ltx"
    run = api.train(*words, iterations=1, run_dir=str(tmp_path / "run"))
    assert len(run.samples(["a cat"])[0]) == 5
    lines = (run.path / "metrics.jsonl").read_text().splitlines()
    assert any("reward/motion/mean" in line for line in lines)
    with Image.open(next((run.path / "samples").glob("eval_*.gif"))) as moving:
        assert moving.info["duration"] == 40  # of 25 frames a second
