"""A run with more iterations."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from rlfactory.config.problems import PlanError
from rlfactory.tools.extend import extended, write_iterations

DECAYS: dict[str, Any] = {"iterations": 4, "learning_rate": {"final_scale": 0.1}}
CONSTANT: dict[str, Any] = {"iterations": 4, "learning_rate": {"final_scale": 1.0}}


def test_a_learning_rate_that_decays_needs_force(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="decays until then; NOW resumes with") as refused:
        extended(tmp_path, DECAYS, 9, force=False, forcing="NOW", command="rlfactory x")
    assert refused.value.problems[0].fix == "rlfactory x"
    assert extended(tmp_path, DECAYS, 9, force=True, forcing="NOW")["iterations"] == 9
    assert extended(tmp_path, CONSTANT, 9, force=False, forcing="NOW")["iterations"] == 9


def test_iterations_that_were_run_stay(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="is 0, and the run has finished 0"):
        extended(tmp_path, CONSTANT, 0, force=True, forcing="NOW")


def test_former_configurations_are_kept(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(CONSTANT))
    write_iterations(tmp_path, 6)
    write_iterations(tmp_path, 8)
    kept = [tmp_path / "config_1.yaml", tmp_path / "config_2.yaml", config]
    assert [yaml.safe_load(path.read_text())["iterations"] for path in kept] == [4, 6, 8]
