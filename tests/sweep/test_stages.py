"""A stage begins with what the one before learned, through real runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from rlfactory.cli import app
from rlfactory.run.checkpoint.find import WEIGHTS_FILE, newest

JUDGE = """
def letters(prompts, completions):
    return [sum(c.isalpha() for c in text) for text in completions]
"""


def metrics(run: Path) -> list[dict[str, Any]]:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(x).items() if not k.startswith("time")} for x in lines]


@pytest.mark.slow
def test_it_begins_where_the_other_ended(
    gpt2_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "judge.py").write_text(JUDGE)
    words = [
        *("model=gpt2", f"model.path={gpt2_folder}", "hardware=cpu", "algo=ppo"),
        *("reward=function", "reward.function=judge.py:letters", "prompts.starts=[a, the]"),
        *("iterations=2", "prompts_per_iteration=4", "updates_per_iteration=1"),
        *("dynamics.length=6", "evaluation.prompts=4", "evaluation.preview_every=0"),
        *("evaluation.weights=policy", "optimizer.lr=0.01"),
    ]
    assert app.dispatch([*words, "run_dir=one"]) == 0
    assert app.dispatch([*words, "run_dir=two", "begin_from=one", "seed=0"]) == 0
    one, two = metrics(tmp_path / "one"), metrics(tmp_path / "two")
    name = next(key for key in one[0] if key.startswith("eval/") and key.endswith("/mean"))
    assert two[0][name] == one[-1][name] != one[0][name]
    first, second = (newest(tmp_path / run / "checkpoints") for run in ("one", "two"))
    assert first is not None
    assert second is not None
    assert (first / WEIGHTS_FILE).read_bytes() != (second / WEIGHTS_FILE).read_bytes()
