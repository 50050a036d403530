"""The whole command on the pretended device: a run, its files, and what follows it."""

from pathlib import Path
from typing import Any

import pytest
from pretended.client import Pretended

pytestmark = pytest.mark.slow
SMALL = (
    *("iterations=2", "prompts_per_iteration=2", "group_size=2", "evaluation.prompts=2"),
    *("updates_per_iteration=1", "checkpoint.every=1", "evaluation.grid=1"),
)
IMAGES = ("model=tiny_sd3", "schedule.steps=3", "micro_batch=4", "sample_batch=4", "precision=bf16")
TEXTS = ("model=tiny_gpt2", "dynamics.length=8")
GPU, CPU = "NCCL", "gloo"


WHOLE = pytest.mark.whole


@pytest.mark.parametrize(
    ("family", "finetune"),
    [
        pytest.param(IMAGES, "lora", id="images-lora"),
        pytest.param(IMAGES, "full", id="images-full", marks=WHOLE),
        pytest.param(TEXTS, "lora", id="texts-lora", marks=WHOLE),
        pytest.param(TEXTS, "full", id="texts-full"),
    ],
)
def test_a_run_is_resumed_and_used(
    pretended: Pretended, tmp_path: Path, family: tuple[str, ...], finetune: str
) -> None:
    words = [*family, *SMALL, f"model.finetune={finetune}", "hardware=gpu", "run_dir=run"]
    env = {"RLFACTORY_FAULT": "between_updates:raise:2"}
    failed = pretended.command(words, tmp_path, env=env)
    assert failed["codes"] != [0]
    assert "FaultError" in failed["said"]
    commands = [
        ["resume", "run"],
        ["sample", "run", "--prompt", "a red square"],
        ["evaluate", "run"],
        ["export", "run", "--to", "exported"],
    ]
    for command in commands:
        found = pretended.command(command, tmp_path)
        assert found["codes"] == [0], found["said"]
    assert any((tmp_path / "exported").iterdir())


@pytest.mark.parametrize(
    "family",
    [pytest.param(IMAGES, id="images", marks=WHOLE), pytest.param(TEXTS, id="texts")],
)
def test_two_processes_keep_tensors_of_the_cpu_from_nccl(
    pretended: Pretended, tmp_path: Path, family: tuple[str, ...]
) -> None:
    words = [*family, *SMALL, "hardware=ddp", "hardware.processes=2", "run_dir=run"]
    found = pretended.command([*words, "hardware.device=cuda"], tmp_path, processes=2)
    # a collective of tensors of both devices is an error, and so is one of the wrong backend
    assert found["codes"] == [0, 0], found["said"]
    of_rank = [collectives(events) for events in found["results"]]
    assert of_rank[0] == of_rank[1]
    assert of_rank[0][GPU, "all_reduce"] > 0, "gradients are summed by NCCL"
    assert of_rank[0][CPU, "all_gather"] > 0, "and numbers of the loop by gloo"


def collectives(events: list[Any]) -> dict[tuple[str, str], int]:
    """How often each collective was called, by backend and name."""
    counts: dict[tuple[str, str], int] = {}
    for _, kind, what, _, count in events:
        if kind in (GPU, CPU):
            counts[kind, what] = counts.get((kind, what), 0) + count
    return counts
