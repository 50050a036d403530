"""A small table, and a stand-in for the command that a job is: quick, killable and exact."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).parents[2] / "src"

FILE = """
# A small table
about: {title: Small, paper: A paper, table: Table 1, gpu_hours: 4, ran: not yet, tolerance: none}
columns:
  shapes: {label: Shapes, full: eval/geneval, tiny: eval/shapes, digits: 2}
  steps: {better: lower, tiny: iterations}
sizes:
  full: [model=sd35]
  tiny: [model=tiny_sd3, iterations=6]
seeds: {full: [0], tiny: [0, 1]}
rows:
  - name: SD3.5-M
    before: V-GRPO, one
    claimed: {shapes: 0.63}
  - name: V-GRPO, one
    overrides: [algo=vgrpo]
    tiny: [optimizer.lr=1e-3]
    claimed: {shapes: 0.97}
    note: 600 steps
  - name: two stages
    stages: [[algo=nft], [algo=vgrpo, iterations=8]]
"""

# what `rlfactory OVERRIDES run_dir=FOLDER` does, as far as a sweep can see
STAND_IN = """
import hashlib, json, os, pathlib, signal, sys, time
words = dict(w.lstrip("+").split("=", 1) for w in sys.argv[1:])
run = pathlib.Path(words["run_dir"])
def status(word):
    (run / ".STATUS").write_text(word); os.replace(run / ".STATUS", run / "STATUS")
def leave(number, frame):
    status("interrupted" if number == signal.SIGINT else "preempted"); os._exit(128 + number)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(number, leave)
if not (run / "config.yaml").exists():            # it comes last
    (run / "checkpoints").mkdir(parents=True, exist_ok=True)
    status("running")
    (run / "command.txt").write_text(" ".join(sys.argv[1:]))
    (run / "config.yaml").write_text("iterations: 1\\n")
if (run / "STATUS").read_text() == "done":
    sys.exit(0)
status("running")
state = run / "checkpoints" / "state.json"
if state.exists():
    done, value = json.loads(state.read_text())
else:
    begin = words.get("begin_from")
    done, value = 0, words["seed"]
    if begin:
        value = json.loads((pathlib.Path(begin) / "checkpoints/state.json").read_text())[1]
lines = (run / "metrics.jsonl").read_text().splitlines(True)[:done] if done else []
(run / "metrics.jsonl").write_text("".join(lines))
for i in range(done, int(words["iterations"])):
    time.sleep(float(os.environ.get("PACE", "0.01")))
    value = hashlib.sha256((value + words.get("optimizer.lr", "")).encode()).hexdigest()
    if i == 2 and os.path.exists(f"fail-{run.name}"):
        status("failed")
        try:
            raise RuntimeError("no more memory")
        except RuntimeError:
            import traceback
            (run / "log.txt").write_text("ERROR the run failed\\n" + traceback.format_exc())
        print("error: no more memory", file=sys.stderr)
        sys.exit(1)
    score = int(value[:4], 16) / 65536
    with (run / "metrics.jsonl").open("a") as file:
        line = {"iteration": i + 1, "time": i + 1.0}
        line |= {"reward/shapes/mean": score, "eval/shapes/mean": score}
        file.write(json.dumps(line) + "\\n")
    (run / "checkpoints" / ".state").write_text(json.dumps([i + 1, value]))
    os.replace(run / "checkpoints" / ".state", state)
begun = done < int(words["iterations"])
if begun or not (run / "finished").exists():      # else killed between this line and the last
  with (run / "finished").open("a") as file:
    file.write(f"{os.environ.get('CUDA_VISIBLE_DEVICES')}\\n")
status("done")
"""

# the command, with the stand-in for jobs and without composing them
DRIVER = """
import sys
from rlfactory.cli import app
from rlfactory.sweep import command
from rlfactory.sweep import process
process.COMMAND = [sys.executable, "-S", "-E", {stand_in!r}]
if {unchecked}:
    command.plans_of = lambda jobs: {{}}
app.main()
"""

Drive = Callable[..., "subprocess.Popen[str]"]


def _listen() -> None:
    # a shell's background job ignores Ctrl-C, one of nohup SIGHUP, and so would this one
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.fixture
def sheet(tmp_path: Path) -> Path:
    """The file of a small table."""
    path = tmp_path / "small.yaml"
    path.write_text(FILE)
    return path


@pytest.fixture
def stand_in(tmp_path: Path) -> Path:
    """A script that behaves as a run does."""
    path = tmp_path / "stand_in.py"
    path.write_text(STAND_IN)
    return path


@pytest.fixture
def drive(tmp_path: Path, sheet: Path, stand_in: Path) -> Drive:
    """Begins `rlfactory sweep small.yaml size=tiny WORDS` in the folder of the file."""

    def begin(*words: str, pace: float = 0.01, **more: str) -> "subprocess.Popen[str]":
        script = tmp_path / "driver.py"
        script.write_text(DRIVER.format(stand_in=str(stand_in), unchecked=True))
        path = os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])
        return subprocess.Popen(
            [sys.executable, str(script), "sweep", sheet.name, "size=tiny", *words],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": path, "NO_COLOR": "1", "PACE": str(pace), **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=_listen,
        )

    return begin


@pytest.fixture
def traced() -> Callable[[Path], dict[str, Any]]:
    """What stand-ins have left in a sweep's folder, by job."""

    def of(folder: Path) -> dict[str, Any]:
        names = ("STATUS", "metrics.jsonl", "command.txt", "checkpoints/state.json")
        jobs = [job["folder"] for job in json.loads((folder / "sweep.json").read_text())["jobs"]]
        found: dict[str, Any] = {
            job: [(folder / job / name).read_text() for name in names] for job in jobs
        }
        return found

    return of
