"""How far a job is, from its folder."""

import math
from pathlib import Path

import pytest

from rlfactory.sweep.status import failure, last_line, standing, state_of


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("done", "done"),
        ("failed", "retry"),
        ("running", "resume"),
        ("interrupted", "resume"),
        ("preempted", "resume"),
    ],
)
def test_states(tmp_path: Path, word: str, state: str) -> None:
    assert state_of(tmp_path) == "new"
    (tmp_path / "STATUS").write_text(f"{word}\n")
    assert state_of(tmp_path) == state


def test_the_last_whole_line_about_training_counts(tmp_path: Path) -> None:
    (tmp_path / "STATUS").write_text("running")
    (tmp_path / "metrics.jsonl").write_text(
        '{"iteration": 3, "time": 6.5, "reward/a/mean": 0.5, "reward/b/mean": null}\n'
        '{"iteration": 3, "time": 7.0, "eval/a/mean": 0.1}\n'
        '{"iteration": 4, "reward/a/me'
    )
    found = standing(tmp_path, "b")
    assert (found.state, found.iteration, found.seconds, found.score) == ("resume", 3, 6.5, 0.5)
    assert math.isnan(standing(tmp_path / "none").score)


def test_a_long_file_is_read_from_its_end(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"iteration": 1, "reward/a/mean": 1}\n' * 5000)
    assert last_line(path) == {"iteration": 1, "reward/a/mean": 1}
    path.write_text("torn")
    assert last_line(path) is None


def test_why_a_job_failed(tmp_path: Path) -> None:
    output = tmp_path / "out.txt"
    output.write_text("iteration 1\nerror: old\nerror: no memory\nThe traceback is in x\n")
    assert failure(tmp_path, output) == ["error: no memory"]
    trace = "Traceback (most recent call last):\n  one\n  two\nValueError: new\n"
    (tmp_path / "log.txt").write_text(trace.replace("new", "old") + "2026 INFO on\n" + trace)
    said = failure(tmp_path, output)
    assert said[0] == "error: no memory"
    assert said[1:] == trace.splitlines()


def test_a_job_that_said_nothing_of_a_fault(tmp_path: Path) -> None:
    output = tmp_path / "out.txt"
    output.write_text("\n".join(map(str, range(20))) + "\n\n")
    assert failure(tmp_path, output) == ["14", "15", "16", "17", "18", "19"]
    assert failure(tmp_path, tmp_path / "none") == []
