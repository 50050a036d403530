"""The real packages where they are installed, in a process of their own; and accelerate's real
trackers on stand-ins of what they and we ask of the packages everywhere.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import MagicMock

import accelerate.tracking  # noqa: F401  # it looks for the packages, not for stand-ins
import pytest

import rlfactory
from rlfactory.run.folder import RunFolder
from rlfactory.run.loggers.base import SWEEP, Logger, logger_links
from rlfactory.run.loggers.trackers import MLflow, SwanLab
from rlfactory.run.samples import SampleTable

CONFIG = {"seed": 1, "algo": {"_target_": "a.B", "clip": 0.5}}
LOGGED = """
import sys
from pathlib import Path
from PIL import Image
from rlfactory.run.folder import RunFolder
from rlfactory.run.loggers.trackers import MLflow, SwanLab
from rlfactory.run.samples import SampleTable

run = Path(sys.argv[1])
RunFolder.create(run)
Image.new("RGB", (8, 4)).save(run / "a.png")
for begin, end in ((0, 3), (3, 4)):
    logger = {logger}
    logger.start(run, {{"seed": 1, "algo": {{"_target_": "a.B", "clip": 0.5, "resumed": begin}}}})
    for i in range(begin, end):
        logger.log(i, {{"reward/shapes/mean": i / 2, "loss/value": float("nan")}})
    logger.images(end - 1, "eval/samples", run / "a.png", "caption")
    rows = [["a", 1.0], ["b", None]]
    logger.table(end - 1, "eval/table", SampleTable("t", ["prompt", "s"], rows, [run / "a.png"]))
    RunFolder(run).set_status("failed" if begin else "done")
    logger.finish()
    logger.finish()
"""


def real(tmp_path: Path, logger: str, more: str = "", **own: str) -> str:
    """What a process prints that logs to a real package in two parts, and does `more`."""
    (tmp_path / "run").mkdir()
    own["PYTHONPATH"] = os.pathsep.join([str(Path(rlfactory.__file__).parents[1]), *sys.path])
    return subprocess.run(
        [sys.executable, "-c", LOGGED.format(logger=logger) + more, str(tmp_path / "run")],
        env=os.environ | {SWEEP: "awm-tiny"} | own,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.mark.slow
@pytest.mark.skipif(find_spec("mlflow") is None, reason="mlflow is not installed")
def test_the_real_mlflow_keeps_one_run_over_two_starts(tmp_path: Path) -> None:
    more = """
import mlflow
client = mlflow.MlflowClient()
(experiment,) = client.search_experiments(filter_string="name = 'p'")
(found,) = client.search_runs([experiment.experiment_id])
history = client.get_metric_history(found.info.run_id, "reward/shapes/mean")
print([(m.step, m.value) for m in history], found.info.status, found.data.tags["group"])
print(found.data.params["algo.clip"], found.data.params["algo.resumed"], found.info.run_name)
print(len(client.list_artifacts(found.info.run_id, "images")))
print(mlflow.artifacts.load_dict(f"runs:/{found.info.run_id}/eval/table.json"))
"""
    uri = f"sqlite:///{tmp_path}/kept.db"
    said = real(tmp_path, 'MLflow(project="p")', more, MLFLOW_TRACKING_URI=uri).splitlines()
    assert said == [
        "[(0, 0.0), (1, 0.5), (2, 1.0), (3, 1.5)] FAILED awm-tiny",
        "0.5 0 run",
        "4",
        "{'columns': ['prompt', 's', 'iteration'],"
        " 'data': [['a', 1.0, 2], ['b', None, 2], ['a', 1.0, 3], ['b', None, 3]]}",
    ]


@pytest.mark.slow
@pytest.mark.skipif(find_spec("swanlab") is None, reason="swanlab is not installed")
def test_the_real_swanlab_keeps_everything_in_the_run_folder(tmp_path: Path) -> None:
    real(tmp_path, 'SwanLab(project="p", mode="offline", workspace=None)')
    run = tmp_path / "run"
    kept = (run / "swanlab_id").read_text().strip()
    first, second = sorted(run.glob(f"swanlog/run-*-{kept}"))
    assert len([*first.glob("media/image/*.png")]) == 1
    assert "| b | " in next(second.glob("media/text/*.txt")).read_text()
    assert logger_links(run) == {}, "offline there is no page"


def package(monkeypatch: pytest.MonkeyPatch, name: str) -> MagicMock:
    made = MagicMock()
    monkeypatch.setitem(sys.modules, name, made)
    return made


def used(logger: Logger, run_dir: Path, picture: Path, table: SampleTable) -> None:
    logger.start(run_dir, CONFIG)
    logger.log(3, {"loss/value": 0.5})
    logger.images(3, "eval/samples", picture, "caption")
    logger.table(3, "eval/table", table)
    logger.finish()
    logger.finish()


def test_mlflow_gives_the_id_and_is_asked_for_it_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, picture: Path, table: SampleTable
) -> None:
    mlflow = package(monkeypatch, "mlflow")
    mlflow.utils.validation = MagicMock(MAX_PARAM_VAL_LENGTH=6000, MAX_PARAMS_TAGS_PER_BATCH=2)
    mlflow.get_tracking_uri.return_value = "http://server"
    mlflow.start_run.return_value.info = MagicMock(run_id="given", experiment_id="7")
    run = RunFolder.create(tmp_path / "run")
    for status in ("done", "failed"):
        run.set_status(status)
        used(MLflow(project="p"), run.path, picture, table)
    asked = [call.kwargs["run_id"] for call in mlflow.start_run.call_args_list]
    assert asked == [None, "given"]
    parameters = [call.args[0] for call in mlflow.log_params.call_args_list]
    assert parameters == [{"seed": 1, "algo._target_": "a.B"}, {"algo.clip": 0.5}], "once"
    mlflow.log_metrics.assert_called_with({"loss/value": 0.5}, step=3)
    mlflow.Image.assert_called_with(str(picture))
    columns = {"prompt": ["a | cat", "a dog"], "score": [1.0, None], "iteration": [3, 3]}
    mlflow.log_table.assert_called_with(columns, "eval/table.json")
    assert [call.args for call in mlflow.end_run.call_args_list] == [("FINISHED",), ("FAILED",)]
    assert logger_links(run.path) == {"MLflow": "http://server/#/experiments/7/runs/given"}


def test_swanlab_goes_on_by_the_id_of_the_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, picture: Path, table: SampleTable
) -> None:
    swanlab = package(monkeypatch, "swanlab")
    swanlab.init.return_value.url = "page"
    for _ in range(2):
        logger = SwanLab(project="p", mode=None, workspace="w")
        used(logger, tmp_path, picture, table)
    first, second = (call.kwargs["id"] for call in swanlab.init.call_args_list)
    assert first == second == (tmp_path / "swanlab_id").read_text().strip()
    assert swanlab.init.call_args.kwargs["resume"] == "allow"
    swanlab.config.update.assert_called_with(CONFIG, allow_val_change=True)
    swanlab.Image.assert_called_with(str(picture), caption="caption")
    swanlab.Text.assert_called_with(table.markdown())
    logged = swanlab.init.return_value.log.call_args_list
    assert [call.kwargs["step"] for call in logged] == [3] * 6
    assert swanlab.init.return_value.finish.call_count == 2
    assert logger_links(tmp_path) == {"SwanLab": "page"}
    logger.restart(tmp_path)
    logger.start(tmp_path, CONFIG)
    assert swanlab.init.call_args.kwargs["id"] != first
