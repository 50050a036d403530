"""Extending a run: more iterations in its configuration, whose former file is kept."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from rlfactory.config.problems import PlanError, Problem
from rlfactory.run.atomic_write import write_text
from rlfactory.run.checkpoint.find import all_checkpoints
from rlfactory.run.folder import RunFolder
from rlfactory.utils.data_files import read_yaml

Config = Mapping[str, Any]


def extended(
    run: Path, frozen: Config, iterations: int, *, force: bool, forcing: str, command: str = ""
) -> Config:
    """A run's configuration with another number of iterations.

    PlanError where the run has gone further; or where its learning rate depends on that number,
    without `force`, for which the caller writes `forcing`, or a `command`.
    """
    done = max(all_checkpoints(RunFolder(run).checkpoints), default=0)
    if iterations < max(done, 1):
        message = f"is {iterations}, and the run has finished {done}"
        raise PlanError([Problem("iterations", message)])
    former, decays = frozen["iterations"], frozen["learning_rate"]["final_scale"] != 1
    if iterations != former and decays and not force:
        message = (
            f"was {former}, and the learning rate decays until then; {forcing} resumes"
            f" with the rates of a run of {iterations}"
        )
        raise PlanError([Problem("iterations", message, command)])
    return {**frozen, "iterations": iterations}


def write_iterations(run: Path, iterations: int) -> None:
    """Change the number of iterations in config.yaml; the former file is kept."""
    folder = RunFolder(run)
    content = read_yaml(folder.config) | {"iterations": iterations}
    keep_config(folder)
    write_text(folder.config, yaml.safe_dump(content, sort_keys=False, allow_unicode=True))


def keep_config(folder: RunFolder) -> None:
    """Copy config.yaml to the first free `config_N.yaml`."""
    names = (folder.path / f"config_{n}.yaml" for n in range(1, 10**6))
    former = next(path for path in names if not path.exists())
    write_text(former, folder.config.read_text(encoding="utf-8"))


def is_done(path: Path, frozen: Mapping[str, Any]) -> bool:
    """Whether a run has finished; prints a line if so."""
    folder = RunFolder(path)
    if not folder.status.is_file() or folder.read_status() != "done":
        return False
    print(f"{path} is done (iterations={frozen['iterations']}); see {folder.summary}")
    return True
