"""Networks of published shapes on fake CUDA: bytes and kernel launches are the recorded ones."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pretended.client import ENV

HERE = Path(__file__).parent
GOLDEN: dict[str, dict[str, float]] = {
    "sd14": {
        "weights": 1.604,
        "sampling": 0.134,
        "saved": 1.603,
        "learning": 1.667,
        "sampling_launches": 1950,
        "forward_launches": 1952,
        "backward_launches": 2581,
    },
    "sd35_medium": {
        "weights": 4.248,
        "sampling": 0.08,
        "saved": 1.557,
        "learning": 1.581,
        "sampling_launches": 3633,
        "forward_launches": 3635,
        "backward_launches": 5846,
    },
    "flux_dev": {
        "weights": 22.363,
        "sampling": 0.328,
        "saved": 6.472,
        "learning": 6.684,
        "sampling_launches": 5561,
        "forward_launches": 5555,
        "backward_launches": 8013,
    },
    "llama_1b": {
        "weights": 4.604,
        "sampling": 2.558,
        "saved": 4.877,
        "learning": 6.834,
        "sampling_launches": 839,
        "forward_launches": 842,
        "backward_launches": 1562,
    },
}
"""GiB of weights (float32 adapters included), of sampling's largest moment, saved for the backward
pass, and of learning's largest moment without gradients' and optimizer's; and launches.

One item: 512 x 512 pixels with LoRA in bf16; 1,024 tokens of Llama 3.2 1B, float32 weights in bf16
autocast, all of them trained.
"""
TOLERANCE = 0.02
QWEN3_8B = {"weights": 15.419, "saved": 1.432, "peak": 18.076}
"""GiB of learning from one response of 4,096 tokens by LoRA, as conf/model/qwen3.yaml says; the
peak includes weights and adapters' gradients.
"""


def measured(script: str, *words: str) -> dict[str, dict[str, float]]:
    done = subprocess.run(
        [sys.executable, str(HERE / script), *words],
        env=os.environ | ENV,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if "no_device" in found:
        pytest.skip(f"no pretended device: {found['no_device']}")
    return found


LARGE = ("sd14", "flux_dev")
"""Of minutes; the others are one of images and one of texts."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.whole if n in LARGE else ()) for n in GOLDEN],
)
def test_bytes_and_launches_are_the_recorded_ones(name: str) -> None:
    """Other numbers may be right: fewer are a gain to be recorded here, more need a reason."""
    found = measured("fake_cuda.py", name)[name]
    assert found == pytest.approx(GOLDEN[name], rel=TOLERANCE)


@pytest.mark.slow
def test_a_language_model_learns_from_long_responses_on_one_device() -> None:
    found = measured("fake_language.py")["qwen3_8b"]
    assert found["peak"] < 80
    assert found == pytest.approx(QWEN3_8B, rel=TOLERANCE)
