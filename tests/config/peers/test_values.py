"""Values of other libraries' options."""

from pathlib import Path

import pytest

from rlfactory.config.overrides import compose
from rlfactory.config.peers import values


@pytest.mark.parametrize(
    ("path", "option"),
    [
        ("stabilityai/stable-diffusion-3.5-medium", "sd35"),
        ("stabilityai/stable-diffusion-3.5-large", "sd35"),
        ("black-forest-labs/FLUX.1-schnell", "flux_schnell"),
        ("stable-diffusion-v1-5/stable-diffusion-v1-5", "sd15"),
        ("Qwen/Qwen3-8B", "qwen3"),
        ("openai-community/gpt2", "gpt2"),
        ("someone/my-flux-lora", "flux"),
        ("Tongyi-MAI/Z-Image-Turbo", "z_image_turbo"),
        ("Efficient-Large-Model/SANA1.5_1.6B_1024px_diffusers", "sana"),
        ("black-forest-labs/FLUX.2-klein-4B", "flux2_klein"),
        ("someone/my-flux.2-klein-lora", "flux2_klein"),
        ("someone/my-sdxl", "sdxl"),
        ("someone/my-stable-diffusion-xl", "sdxl"),
        ("lodestones/Chroma1-Base", "chroma"),
        ("someone/my-qwen-image-lora", "qwen_image"),
        ("Qwen/Qwen-Image-2.1", "qwen_image_21"),
        ("Qwen/Qwen-Image-Edit-2509", "qwen_image_edit"),
        ("black-forest-labs/FLUX.1-Kontext-pro", "flux_kontext"),
        ("black-forest-labs/FLUX.1-Krea-dev", "flux"),
        ("someone/my-krea2-lora", "krea2"),
        ("baidu/ERNIE-Image-Turbo", "ernie_image"),
        ("someone/lumina-image-2.0-mine", "lumina2"),
        ("someone/ltx-video-lora", "ltx"),
        ("meta-llama/Llama-3.2-1B", "causal_lm"),
        ("zoo:tiny_sd", "tiny_sd"),
    ],
)
def test_models_have_the_option_of_their_kind(path: str, option: str) -> None:
    alone = f"model.path={path}"
    assert values.model(path, {}) == [(f"model={option}", alone), (alone,)]


def test_folders_are_read(gpt2_folder: Path, tmp_path: Path) -> None:
    assert values.model(str(gpt2_folder), {})[0][0] == "model=causal_lm"
    assert values.model(str(tmp_path), {}) == [(f"model.path={tmp_path}",)]


def test_rewards() -> None:
    config = compose([]).values
    assert values.reward("PickScore", config)[0] == ("reward=pickscore",)
    assert values.reward("mine.py:score", config)[0] == ("reward=mine.py:score",)
    assert values.reward("[mine.py:score,length]", config)[0] == ("reward=[mine.py:score,length]",)
    assert values.reward("owner/model", config)[0][1] == "reward=reward_model"


def test_prompts(tmp_path: Path) -> None:
    assert values.prompts("dataset/ocr", {})[0] == ("prompts=signs",)
    (folder := tmp_path / "ocr").mkdir()
    assert values.prompts(str(folder), {})[0] == ("prompts=datasets", f"prompts.path={folder}")
    assert values.prompts("a.jsonl", {})[0] == ("prompts=file", "prompts.path=a.jsonl")
    assert values.prompts("owner/data", {})[0] == ("prompts=datasets", "prompts.path=owner/data")
    assert values.prompts("nouns_activities", {})[0] == ("prompts=activities",)


def test_runs_are_resumed_by_their_folder(tmp_path: Path) -> None:
    (tmp_path / "run" / "checkpoints" / "step_3").mkdir(parents=True)
    assert values.resume(str(tmp_path / "run" / "checkpoints"), {}) == [()]
    (tmp_path / "run" / "config.yaml").touch()
    found = values.resume(str(tmp_path / "run" / "checkpoints" / "step_3"), {})
    assert found == [(f"run_dir={tmp_path / 'run'}",)]


@pytest.mark.parametrize(("text", "found"), [("1e-4", 1e-4), ("3", 3.0), ("x", None)])
def test_numbers(text: str, found: float | None) -> None:
    assert values.number(text) == found
