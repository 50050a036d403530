"""With `hardware.deterministic=true` a GPU computes the same bits in each run, resumed ones too.

One of the runs on a CPU (`-m slow`; all with `--whole`) keeps the test itself sound where there is
no GPU.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

REPOSITORY = Path(__file__).parents[2]
sys.path.append(str(REPOSITORY / "scripts"))

SMALL = (
    *("iterations=3", "prompts_per_iteration=2", "group_size=2", "micro_batch=4", "sample_batch=4"),
    *("evaluation.prompts=2", "evaluation.grid=2", "evaluation.preview_every=0"),
    *("checkpoint.every=1", "checkpoint.keep=null", "hardware.deterministic=true"),
)
RUNS = {
    "nft": ("algo=nft", "model.finetune=lora", "precision=bf16"),
    "grpo": ("algo=grpo", "model.finetune=full"),
    "flux": ("model=tiny_flux", "algo=awm", "precision=bf16"),
    "ddpo": ("model=tiny_sd", "algo=ddpo"),
    "ppo": ("model=tiny_gpt2", "dynamics.top_p=0.9"),
}
ON_GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]
ON_CPU = [pytest.mark.slow, pytest.mark.whole]


def run(folder: Path, *words: str, fault: str = "") -> subprocess.CompletedProcess[str]:
    env = {"PYTHONPATH": str(REPOSITORY / "src"), "RLFACTORY_FAULT": fault, "NO_COLOR": "1"}
    kept = {name: value for name, value in os.environ.items() if name != "RLFACTORY_FAULT"}
    return subprocess.run(
        [sys.executable, "-m", "rlfactory.cli", *words],
        cwd=folder,
        env=kept | {name: value for name, value in env.items() if value},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("name", "device"),
    [
        *(pytest.param(name, "cuda", marks=ON_GPU) for name in RUNS),
        *(pytest.param(name, "cpu", marks=ON_CPU) for name in RUNS),
    ],
)
def test_two_runs_and_a_resumed_one_are_equal(name: str, device: str, tmp_path: Path) -> None:
    from faulty.traces import compared, traces

    words = [*RUNS[name], *SMALL, f"hardware.device={device}"]
    for folder in ("one", "two"):
        done = run(tmp_path, *words, f"run_dir={folder}")
        assert done.returncode == 0, done.stderr
    killed = run(tmp_path, *words, "run_dir=resumed", fault="after_iteration:kill:2")
    assert killed.returncode != 0
    done = run(tmp_path, "resume", "resumed")
    assert done.returncode == 0, done.stderr
    assert "resuming after iteration 1" in done.stdout
    expected = traces(tmp_path / "one")
    assert compared(expected, traces(tmp_path / "two")) == []
    assert compared(expected, traces(tmp_path / "resumed")) == []
