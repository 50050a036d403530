"""A new run's folder is made only where the run can start."""

from pathlib import Path

import pytest

from rlfactory.cli.new_run import create_run
from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError


def test_no_folder_is_made_for_prompts_that_are_not_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = plan_from_words("prompts=hpdv2", "reward=compressibility", "run_dir=run")
    assert any("hf download" in row for row in plan.derived.values())
    with pytest.raises(PlanError, match="hf download ymhao/HPDv2"):
        create_run(plan, "rlfactory")
    assert not (tmp_path / "run").exists()
