import subprocess
from pathlib import Path

import pytest

from rlfactory.run.environment import (
    Environment,
    current_environment,
    differing,
    git_commit,
    read_environments,
    record_environment,
)


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


def test_a_process_knows_where_it_computes() -> None:
    found = current_environment("cpu", 2)
    assert "cores" in found.device
    assert found.processes == 2
    assert {"rlfactory", "Python", "torch"} <= found.versions.keys()
    assert current_environment("NVIDIA H200").device == "NVIDIA H200"


def test_the_commit_says_whether_files_differ_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git_commit() is None
    git(tmp_path, "init")
    (tmp_path / "reward.py").write_text("1")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    commit = git_commit()
    assert commit is not None
    assert len(commit) == 12
    (tmp_path / "reward.py").write_text("2")
    assert git_commit() == f"{commit}+"


def test_another_environment_is_appended_and_the_same_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "environment.json"
    assert read_environments(path) == []
    first, second = (Environment(name, 1, {"torch": "2"}, None) for name in ("A100", "H200"))
    for environment in (first, first, second):
        record_environment(path, environment)
    assert read_environments(path) == [first, second]


def test_a_damaged_file_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "environment.json"
    path.write_text("[{}")
    assert read_environments(path) == []
    record_environment(path, Environment("cpu", 1, {}, None))
    assert len(read_environments(path)) == 1


def test_what_differs_is_told_in_words_and_what_was_not_recorded_is_left_out() -> None:
    then = {"threads": 1, "world_size": 2, "torch": "2.1", "gone": 0}
    now = {"threads": 1, "world_size": 4, "torch": "2.2", "new": 0}
    assert [*differing(then, now)] == ["processes: 2 then, 4 now", "torch: 2.1 then, 2.2 now"]
