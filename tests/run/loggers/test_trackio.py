"""The real package where it is installed, in a process of its own, since it finds its folder when
it is imported; and a stand-in of what we ask of it everywhere.
"""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rlfactory
from rlfactory.run.loggers.base import SWEEP
from rlfactory.run.loggers.trackio import Trackio
from rlfactory.run.samples import SampleTable

REAL = """
import json, sys
from pathlib import Path
from PIL import Image
from rlfactory.run.loggers.trackio import Trackio
from rlfactory.run.samples import SampleTable

run = Path(sys.argv[1])
Image.new("RGB", (8, 4)).save(run / "a.png")
for begin, end in ((0, 3), (1, 4)):
    logger = Trackio(project="p", space=None)
    logger.start(run, {"algo": {"clip": 0.5}})
    for i in range(begin, end):
        logger.log(i, {"loss/policy": float(begin)})
    logger.images(end - 1, "eval/samples", run / "a.png", "caption")
    rows = [["a", 1.0], ["b", None]]
    logger.table(end - 1, "eval/table", SampleTable("t", ["prompt", "s"], rows, [run / "a.png"]))
    logger.finish()
    logger.finish()

import trackio
from trackio.sqlite_storage import SQLiteStorage
(found,) = trackio.Api().runs("p")
logs = SQLiteStorage.get_logs("p", found.name, run_id=found.id)
print(json.dumps({"name": found.name, "config": found.config, "logs": logs}))
"""


@pytest.mark.skipif(find_spec("trackio") is None, reason="trackio is not installed")
def test_the_real_package_keeps_one_run_over_two_starts(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    source = str(Path(rlfactory.__file__).parents[1])
    own = {"TRACKIO_DIR": str(tmp_path / "kept"), "HF_HUB_OFFLINE": "1", "PYTHONPATH": source}
    done = subprocess.run(
        [sys.executable, "-c", REAL, str(run)],
        env=os.environ | own | {SWEEP: "awm-tiny"},
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)  # it said nothing of its own
    assert found["name"] == f"run-{(run / 'trackio_id').read_text().strip()}"
    assert found["config"]["algo"] == {"clip": 0.5}
    assert found["config"]["_Group"] == "awm-tiny"
    scalars = [(e["step"], e["loss/policy"]) for e in found["logs"] if "loss/policy" in e]
    assert scalars == [(0, 0.0), (1, 0.0), (2, 0.0), (2, 1.0), (3, 1.0)]
    images = [e["eval/samples"] for e in found["logs"] if "eval/samples" in e]
    assert [image["caption"] for image in images] == ["caption", "caption"]
    rows = [e["eval/table"]["_value"] for e in found["logs"] if "eval/table" in e][0]
    assert [(row["prompt"], row["s"]) for row in rows] == [("a", 1.0), ("b", None)]
    assert rows[0]["image"]["_type"] == "trackio.image"


class Service:
    """What we use of Trackio, noted."""

    def __init__(self) -> None:
        self.runs: dict[str, list[Any]] = {}
        self.asked: dict[str, Any] = {}
        self.finished = 0

    def init(self, **asked: Any) -> Any:
        print("* Trackio project initialized")
        self.asked = asked
        kept = self.runs.setdefault(asked["name"], [])
        last = max((step for step, _ in kept), default=-1)
        return SimpleNamespace(
            _next_step=last + 1, log=lambda values, step: kept.append((step, values))
        )

    def finish(self) -> None:
        self.finished += 1

    def Image(self, path: str, caption: str | None = None) -> Any:  # noqa: N802
        return ("image", path, caption)

    def Table(self, columns: list[str], data: list[Any]) -> Any:  # noqa: N802
        return ("table", columns, data)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    made = Service()
    monkeypatch.setitem(sys.modules, "trackio", made)  # type: ignore[arg-type]
    return made


def test_what_it_knows_already_is_not_told_twice(service: Service, tmp_path: Path) -> None:
    for begin, end in ((0, 3), (1, 4)):
        logger = Trackio(project="p", space=None)
        logger.start(tmp_path, {})
        for i in range(begin, end):
            logger.log(i, {"x": float(begin)})
        logger.finish()
        logger.finish()
    (told,) = service.runs.values()
    assert [step for step, _ in told] == [0, 1, 2, 2, 3]
    assert service.finished == 2


def test_pictures_and_tables_are_its_own(
    service: Service, tmp_path: Path, picture: Path, table: SampleTable
) -> None:
    logger = Trackio(project="p", space="me/space")
    logger.start(tmp_path, {"seed": 1})
    logger.images(0, "eval/samples", picture, "caption")
    logger.table(0, "eval/table", table)
    rows = [[("image", str(picture), None), "a | cat", 1.0], [None, "a dog", None]]
    assert service.runs[service.asked["name"]] == [
        (0, {"eval/samples": ("image", str(picture), "caption")}),
        (0, {"eval/table": ("table", ["image", "prompt", "score"], rows)}),
    ]
    assert (service.asked["space_id"], service.asked["config"]) == ("me/space", {"seed": 1})
    assert service.asked["resume"] == "allow"


def test_folders_of_one_name_are_runs_of_their_own(
    service: Service, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for place in ("a/run", "b/run"):
        (tmp_path / place).mkdir(parents=True)
        Trackio(project="p", space=None).start(tmp_path / place, {})
    assert len(service.runs) == 2
    assert all(name.startswith("run-") for name in service.runs)
    assert capsys.readouterr().out == "", "it would break the live lines"


def test_it_goes_on_by_the_id_that_was_saved_and_begins_anew_by_another(
    service: Service, tmp_path: Path
) -> None:
    first, second = Trackio(project="p", space=None), Trackio(project="p", space=None)
    first.start(tmp_path, {})
    (tmp_path / "trackio_id").unlink()
    second.resume(first.state_dict(), 3)
    second.start(tmp_path, {})
    assert second.state_dict() == first.state_dict()
    assert len(service.runs) == 1
    second.restart(tmp_path)
    second.start(tmp_path, {})
    assert second.state_dict() != first.state_dict()
    assert len(service.runs) == 2
