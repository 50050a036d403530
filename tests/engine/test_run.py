"""An engine that dies in mid-run loses nothing: the run resumes to the same weights."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import rlfactory as rl
from rlfactory.engine.base import Completion, EngineError, SamplingSettings
from rlfactory.engine.transformers import Transformers
from rlfactory.run.checkpoint.find import newest
from rlfactory.run.metrics import read

WORDS = [
    *("model=tiny_gpt2", "engine=transformers", "reward=length", "dynamics.length=4"),
    *("iterations=3", "prompts_per_iteration=2", "group_size=2", "updates_per_iteration=1"),
    *("evaluation.prompts=2", "evaluation.preview_every=0", "hardware=cpu"),
    "algo.rollout_correction=2",
]


def weights_of(run: Path) -> bytes:
    checkpoint = newest(run / "checkpoints")
    assert checkpoint is not None
    return (checkpoint / "weights.safetensors").read_bytes()


@pytest.mark.slow
def test_a_run_goes_on_where_its_engine_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dies = {"at": -1}
    calls = list[int]()

    def generate(
        self: Any, prompts: Sequence[Any], seeds: Sequence[int], settings: SamplingSettings
    ) -> list[Completion]:
        calls.append(len(prompts))
        if len(calls) == dies["at"]:
            raise EngineError("the engine is gone")
        draw = torch.Generator()
        drawn = []
        for seed in seeds:
            ids = torch.randint(1, 4000, (settings.length,), generator=draw.manual_seed(seed))
            # of a distribution that is not the trainer's at all
            drawn.append(Completion(ids.tolist(), [-8.3] * settings.length))
        return drawn

    monkeypatch.setattr(Transformers, "generate", generate)
    whole = rl.train(*WORDS, run_dir=tmp_path / "whole")
    rows = read(tmp_path / "whole" / "metrics.jsonl")
    assert all(
        row["engine/log_prob_mismatch_mean"] > 1 for row in rows if "reward/length/mean" in row
    )
    calls.clear()
    dies["at"] = 2
    with pytest.raises(Exception, match="the engine is gone"):
        rl.train(*WORDS, run_dir=tmp_path / "died")
    dies["at"] = -1
    died = rl.load_run(tmp_path / "died")
    assert died.status == "failed"
    assert died.resume().status == "done"
    assert weights_of(died.path) == weights_of(whole.path)
