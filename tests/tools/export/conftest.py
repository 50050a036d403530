"""Short runs to export."""

import sys
from pathlib import Path

import pytest
from tiny_pipelines import *  # noqa: F403  (its fixtures)

from rlfactory.cli import app

sys.path.insert(0, str(Path(__file__).parent))  # for `hub_stand_in`

TINY = [
    "hardware=cpu",
    "iterations=1",
    "prompts_per_iteration=2",
    "group_size=2",
    "evaluation.prompts=2",
    "evaluation.grid=2",
]
IMAGES = [*TINY, "schedule.steps=3", "model.finetune=lora", "model.lora_rank=2"]
TEXTS = [*TINY, "model=tiny_gpt2", "algo=grpo_token", "reward=length", "dynamics.length=4"]


@pytest.fixture(scope="package")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of images, with LoRA."""
    path = tmp_path_factory.mktemp("runs") / "a run"
    assert app.dispatch([f"run_dir='{path}'", *IMAGES]) == 0
    return path


@pytest.fixture(scope="package")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of texts, with LoRA and without a critic."""
    path = tmp_path_factory.mktemp("runs") / "texts"
    assert app.dispatch([f"run_dir={path}", *TEXTS, "model.finetune=lora"]) == 0
    return path
