"""The Dockerfile's steps without a daemon, and what the workflows refer to."""

import os
import re
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from load_script import load_script

ROOT = Path(__file__).parents[2]
RELEASE = ROOT / "scripts" / "release"


@pytest.fixture(scope="module")
def docker_steps() -> ModuleType:
    return load_script(RELEASE / "docker_steps.py")


def test_steps_are_carried_out_in_order(docker_steps: ModuleType, tmp_path: Path) -> None:
    context, image = tmp_path / "context", tmp_path / "image"
    (context / "src" / "__pycache__").mkdir(parents=True)
    (context / "src" / "a.py").write_text("a")
    (context / "LICENSE").write_text("free")
    image.mkdir()
    dockerfile = (
        "ARG PYTHON=3.12\nFROM python:${PYTHON}-slim\n# no step\nARG DEVICE=cpu\nARG INDEX=\n"
        "ENV HOME=/work WORD=said\nWORKDIR /build\nCOPY LICENSE .\nCOPY src src\n"
        'RUN echo "$DEVICE ${INDEX:+index} \\\n  $WORD" > said.txt\nWORKDIR /work\n'
        'RUN echo "$HOME" > home.txt\nUSER 1000\nENTRYPOINT ["cat", "home.txt"]\n'
    )
    steps = docker_steps.Steps(context, image, {"DEVICE": "cuda"}, dict(os.environ))
    for name, rest in docker_steps.instructions(dockerfile):
        steps.do(name, rest)
    made = {str(path.relative_to(image)) for path in image.rglob("*") if path.is_file()}
    assert made == {"build/LICENSE", "build/src/a.py", "build/said.txt", "work/home.txt"}
    assert (image / "build" / "said.txt").read_text().split() == ["cuda", "said"]
    assert (image / "work" / "home.txt").read_text().strip() == str(image / "work")
    assert steps.entrypoint == ["cat", "home.txt"]
    with pytest.raises(subprocess.CalledProcessError):
        steps.do("RUN", "exit 3")
    with pytest.raises(ValueError, match="HEALTHCHECK"):
        steps.do("HEALTHCHECK", "NONE")


def test_an_image_is_sent_all_that_it_copies_and_no_more(docker_steps: ModuleType) -> None:
    steps = docker_steps.instructions((ROOT / "Dockerfile").read_text())
    copied = {word for name, rest in steps if name == "COPY" for word in rest.split()[:-1]}
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[1] == "*"
    assert {line[1:] for line in ignored if line.startswith("!")} == copied
    assert all((ROOT / name).exists() for name in copied)


def test_an_unknown_device_is_refused(docker_steps: ModuleType) -> None:
    assert "DEVICE is" in (command := extras_step(docker_steps))
    done = subprocess.run(
        ["sh", "-c", command],
        env={"DEVICE": "tpu", "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (2, "DEVICE is tpu; allowed are cpu and cuda\n")


def extras_step(docker_steps: ModuleType) -> str:
    """The step that installs the package."""
    found = docker_steps.instructions((ROOT / "Dockerfile").read_text())
    return next(rest for name, rest in found if name == "RUN" and "extras" in rest)


@pytest.mark.parametrize("name", ["tests", "release"])
def test_workflows_run_scripts_that_exist(name: str) -> None:
    workflow: Any = yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text())
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    scripts = [
        path for step in steps for path in re.findall(r"bash (\S+)", str(step.get("run", "")))
    ]
    assert scripts
    assert [path for path in scripts if not (ROOT / path).is_file()] == []
    # only the job that publishes may speak for the repository
    rights = {key: job.get("permissions", {}) for key, job in workflow["jobs"].items()}
    assert [job for job, right in rights.items() if "id-token" in right] == (
        ["publish"] if name == "release" else []
    )
