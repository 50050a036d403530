"""What a newcomer types: read from the page, in its order."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = str(ROOT / "scripts" / "docs")
sys.path.insert(0, DOCS)
newcomer = importlib.import_module("newcomer")
sys.path.remove(DOCS)

LONGEST_ALGORITHM = 60
"""Lines of code of the notebook that adds an algorithm."""


def test_the_page_is_followed_in_its_order() -> None:
    steps = newcomer.steps((ROOT / newcomer.PAGE).read_text(encoding="utf-8"))
    install, reward, prompts, train, sample, resume, export, python = steps
    assert [step.section[:2] for step in steps[:-1]] == [f"{i}." for i in range(1, 8)]
    assert "pip install -c constraints.txt ." in install.text
    assert (reward.kind, python.kind) == ("python", "python")
    assert [line.split()[:2] for line in train.text.splitlines()][0] == ["rlfactory", "check"]
    assert {"printf", "rlfactory"} == {s.text.split()[0] for s in (prompts, sample, resume, export)}


@pytest.mark.parametrize(
    ("kind", "text", "printed"),
    [
        ("bash", "echo a\necho b\n", "a\nb\n"),
        ("python", "# kept.py\nx = '%s'\n", ""),
        ("python", "print('a$b')\n", "a$b\n"),
    ],
)
def test_a_step_runs_as_it_is_typed(kind: str, text: str, printed: str, tmp_path: Path) -> None:
    command = newcomer.Step("s", kind, text).command()
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == printed
    kept = tmp_path / "kept.py"
    assert (kept.read_text() if kept.exists() else None) == (text if "kept" in text else None)


def test_the_first_command_that_fails_ends_a_step(tmp_path: Path) -> None:
    command = newcomer.Step("s", "bash", "false\ntrue\n").command()
    assert subprocess.run(command, cwd=tmp_path, check=False).returncode == 1


def test_nothing_leads_to_another_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    own = str(Path(sys.executable).parent)
    monkeypatch.setenv("PYTHONPATH", "src")
    monkeypatch.setenv("PATH", f"{own}:/usr/bin")
    monkeypatch.setattr(sys, "base_prefix", "/elsewhere")
    found = newcomer.environment()
    assert "PYTHONPATH" not in found
    assert found["PATH"] == "/usr/bin"


def test_an_algorithm_in_a_notebook_is_short() -> None:
    lines = newcomer.code_lines((ROOT / newcomer.NOTEBOOK).read_text(encoding="utf-8"))
    assert 20 < lines <= LONGEST_ALGORITHM
