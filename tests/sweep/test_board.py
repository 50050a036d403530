"""What is shown while a sweep runs."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from rlfactory.sweep import board as board_module
from rlfactory.sweep.board import Board
from rlfactory.sweep.table import Job


def begun(tmp_path: Path, count: int = 3) -> tuple[Board, io.StringIO]:
    jobs = [Job(f"r-s{i}", "r", f"r-s{i}", [], {"seed": i}) for i in range(count)]
    run = tmp_path / "r-s0"
    run.mkdir()
    (run / "STATUS").write_text("running")
    line = {"iteration": 4, "time": 20.0, "reward/a/mean": 0.25, "reward/b/mean": 0.5}
    (run / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    stream = io.StringIO()
    return Board(jobs, tmp_path, {"r-s0": 10, "r-s1": 10}, "b", stream), stream


def test_without_a_terminal_each_change_is_a_line(tmp_path: Path) -> None:
    board, stream = begun(tmp_path)
    with board:
        board.change("r-s0", "running")
        board.change("r-s0", "running")
        board.change("r-s2", "blocked")
        board.refresh()
    assert stream.getvalue().splitlines() == [
        "r-s0  running  4/10  0.500  0:30 left",
        "r-s2  blocked",
    ]


def test_once_in_a_while_it_says_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board, stream = begun(tmp_path)
    board.change("r-s0", "running")
    monkeypatch.setattr(board_module, "EVERY", 0.0)
    board.refresh()
    assert len(stream.getvalue().splitlines()) == 2


def rendered(board: Board) -> list[str]:
    console = Console(file=io.StringIO(), width=100)
    console.print(board.table())
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def test_the_table_has_a_row_a_job(tmp_path: Path) -> None:
    board, _ = begun(tmp_path)
    board.change("r-s0", "running")
    board.add([Job("new-s0", "new", "new-s0", [])])
    assert rendered(board) == [
        "job seed status iteration b left",
        "r-s0 0 running 4/10 0.500 0:30 left",
        "r-s1 1 waiting",
        "r-s2 2 waiting",
        "new-s0 waiting",
    ]


def test_of_many_jobs_those_that_run_are_in_view(tmp_path: Path) -> None:
    board, _ = begun(tmp_path, 200)
    board.change("r-s150", "running")
    lines = rendered(board)
    assert any(line.startswith("r-s150 ") for line in lines)
    assert len(lines) < 60
