"""The same experiment on one process and on two by DeepSpeed's ZeRO."""

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

pytestmark = [
    pytest.mark.dist,
    pytest.mark.timeout(900),
    pytest.mark.skipif(find_spec("deepspeed") is None, reason="the extra deepspeed is missing"),
]

Ran = Callable[[Sequence[Mapping[str, Any]]], list[dict[str, Any]]]

SMALL = ["evaluation.prompts=2", "evaluation.grid=2", "evaluation.preview_every=0"]
IMAGES = [
    *("algo=grpo", "regularizer=kl_v", "model.finetune=full", "schedule.steps=4"),
    *("prompts_per_iteration=2", "group_size=5", "updates_per_iteration=5", "sample_batch=5"),
    # so that one process has more micro-batches than the other, and clipping is seen
    *("micro_batch=4", "max_grad_norm=0.01", "optimizer.eps=1e-5", *SMALL),
]
TEXTS = [
    *("model=tiny_gpt2", "prompts_per_iteration=10", "updates_per_iteration=5"),
    *("sample_batch=5", "dynamics.length=8", "optimizer.eps=1e-3", *SMALL),
]
ZERO = ["hardware=deepspeed", "hardware.processes=2", "hardware.timeout=120"]


def sitting(name: str, *words: str, processes: int = 2) -> dict[str, Any]:
    return {"words": [f"run_dir={name}", *words, "hardware.device=cpu"], "processes": processes}


def checkpoint(run: Path) -> dict[str, torch.Tensor]:
    """Its weights, and the optimiser's moments."""
    place = sorted((run / "checkpoints").glob("step_*"))[-1]
    return load_file(place / "weights.safetensors") | load_file(place / "optimizer.safetensors")


def assert_same(one: Path, other: Path) -> None:
    ours, theirs = checkpoint(one), checkpoint(other)
    assert ours.keys() == theirs.keys()
    assert max(float((ours[key] - theirs[key]).abs().max()) for key in ours) < 1e-6
    policy = {k: f"reference{k[6:]}" for k in ours if k.startswith("policy/")}
    moved = [(ours[k] - ours[r]).abs().max() for k, r in policy.items() if r in ours]
    assert max(moved) > 1e-4, "otherwise it means nothing"


@pytest.mark.parametrize(
    ("words", "stages"), [(IMAGES, (1, 2, 3)), (TEXTS, (2, 3))], ids=["grpo", "ppo"]
)
def test_two_processes_are_one(
    words: list[str], stages: tuple[int, ...], ran: Ran, tmp_path: Path
) -> None:
    words = [*words, "iterations=1"]
    zero = [sitting(f"zero{n}", *words, *ZERO, f"hardware.zero={n}") for n in stages]
    found = ran([sitting("one", *words, "hardware=cpu", processes=1), *zero])
    assert [each["codes"] for each in found] == [[0], *[[0, 0]] * len(stages)], found
    for n in stages:
        assert_same(tmp_path / "one", tmp_path / f"zero{n}")


def test_a_run_goes_on_by_other_strategies(ran: Ran, tmp_path: Path) -> None:
    words = [*IMAGES, "iterations=3", "checkpoint.every=1"]

    def part(stops: int, *hardware: str, processes: int) -> dict[str, Any]:
        begun = sitting("run", *words, *hardware, processes=processes)
        env = {"0": {"RLFACTORY_FAULT": f"sampling:term:{stops}"}} if stops else {}
        return begun | {"words": [*begun["words"], "--force"], "env": env}

    found = ran(
        [
            sitting("one", *words, "hardware=cpu", processes=1),
            part(2, *ZERO, "hardware.zero=3", processes=2),
            part(2, "hardware=cpu", processes=1),
            part(0, *ZERO, "hardware.zero=1", "hardware.offload=cpu", processes=2),
        ]
    )
    assert [each["codes"] for each in found] == [[0], [143, 143], [143], [0, 0]], found
    assert_same(tmp_path / "one", tmp_path / "run")
