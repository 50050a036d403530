"""What all loggers have in common."""

import builtins
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from rlfactory.run.loggers.base import (
    SWEEP,
    NoLogger,
    group_of,
    known_id,
    logger_links,
    save_link,
)
from rlfactory.run.samples import SampleTable


def test_no_logger_leaves_nothing(tmp_path: Path) -> None:
    logger = NoLogger()
    logger.restart(tmp_path)
    logger.resume({}, 3)
    logger.start(tmp_path, {})
    logger.log(0, {"x": 1.0})
    logger.images(0, "x", tmp_path / "x.png")
    logger.table(0, "x", SampleTable("t", [], []))
    logger.finish()
    assert logger.state_dict() == {}
    assert list(tmp_path.iterdir()) == []


def test_a_group_is_the_sweep_as_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SWEEP, raising=False)
    run = tmp_path / "awm-s0"
    assert group_of(run) is None
    (tmp_path / "sweep.json").write_text(json.dumps({"name": "awm", "size": "tiny", "rows": []}))
    assert group_of(run) == "awm-tiny"
    monkeypatch.setenv(SWEEP, "other-full")
    assert group_of(run) == "other-full"


@pytest.mark.parametrize("content", ["{", "[]", '{"name": "awm"}', "7"])
def test_what_is_no_sweep_is_no_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    monkeypatch.delenv(SWEEP, raising=False)
    (tmp_path / "sweep.json").write_text(content)
    assert group_of(tmp_path / "run") is None


def test_a_relative_folder_has_a_folder_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SWEEP, raising=False)
    (tmp_path / "sweep.json").write_text(json.dumps({"name": "awm", "size": "tiny"}))
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path / "run")
    assert group_of(Path()) == "awm-tiny"


def test_an_id_is_the_kept_one_then_the_saved_one(tmp_path: Path) -> None:
    assert known_id(tmp_path / "id", "saved") == "saved"
    (tmp_path / "id").write_text("kept\n")
    assert known_id(tmp_path / "id", "saved") == "kept"
    (tmp_path / "id").write_text("")
    assert known_id(tmp_path / "id", "saved") == "saved"
    assert known_id(tmp_path / "none") is None


def test_services_and_torch_are_not_imported_before_they_are_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = builtins.__import__
    late = {"wandb", "torch", "trackio", "accelerate", "mlflow", "swanlab"}

    def watch(name: str, *args: Any) -> Any:
        assert name.split(".")[0] not in late, name
        return real(name, *args)

    for module in [name for name in sys.modules if name.startswith("rlfactory.run.loggers")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(builtins, "__import__", watch)
    loggers = importlib.import_module("rlfactory.run.loggers")
    loggers.Wandb(project="p", mode="online", entity=None, tags=[])
    loggers.Trackio(project="p", space=None)
    loggers.TensorBoard()
    loggers.MLflow(project="p")
    loggers.SwanLab(project="p", mode=None, workspace=None)


def test_each_service_has_one_page(tmp_path: Path) -> None:
    assert logger_links(tmp_path) == {}
    save_link(tmp_path, "A", None)
    assert list(tmp_path.iterdir()) == []
    for name, url in (("A", "u"), ("B", "v"), ("A", "w")):
        save_link(tmp_path, name, url)
    assert logger_links(tmp_path) == {"A": "w", "B": "v"}
