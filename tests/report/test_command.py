import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rlfactory.config.problems import PlanError
from rlfactory.report.command import FORMATS, compare, report
from rlfactory.report.report import Report

Make = Callable[..., Path]
Capture = pytest.CaptureFixture[str]
PLAIN = "terminal,markdown,csv,latex"


def test_a_sweep_is_printed_and_written(
    tmp_path: Path, filled_sweep: Make, capsys: Capture
) -> None:
    folder = filled_sweep(tmp_path / "s")
    assert report([str(folder), "--format", PLAIN]) == 0
    out = capsys.readouterr().out
    assert "0.850 ± 0.635" in out
    names = {path.name for path in (folder / "report").iterdir()}
    assert names == {"report.md", "curves.png", "curves.svg", "table.csv", "table.tex"}
    assert f"written: {folder / 'report' / 'table.csv'}" in out


def test_a_report_is_written_again_over_itself(
    tmp_path: Path, filled_sweep: Make, capsys: Capture
) -> None:
    folder = filled_sweep(tmp_path / "s")
    for _ in range(2):
        assert report([str(folder), "--format", "csv,latex"]) == 0
    assert "NFT" not in capsys.readouterr().out


@pytest.mark.slow
def test_a_single_run_gets_its_own_page_again(
    tmp_path: Path, make_run: Make, capsys: Capture
) -> None:
    run = make_run(tmp_path / "a", media="images")
    assert report([str(run), "--format", "html"]) == 0
    assert f"written: {run / 'index.html'}" in capsys.readouterr().out
    assert "Reward: shapes" in (run / "index.html").read_text(encoding="utf-8")
    assert report([str(make_run(tmp_path / "b")), "--format", "csv"]) == 0
    assert not (tmp_path / "b" / "index.html").exists()


def test_several_reports_have_a_folder_each(
    tmp_path: Path, filled_sweep: Make, make_run: Make
) -> None:
    filled_sweep(tmp_path / "s")
    make_run(tmp_path / "a")
    out = tmp_path / "out"
    assert report([str(tmp_path), "--out", str(out), "--format", "csv"]) == 0
    assert sorted(path.name for path in out.iterdir()) == ["made-tiny", "runs"]


def test_the_terminal_alone_writes_nothing(tmp_path: Path, make_run: Make, capsys: Capture) -> None:
    run = make_run(tmp_path / "a")
    before = sorted(run.rglob("*"))
    report([str(run), "--format", "terminal"])
    assert sorted(run.rglob("*")) == before
    assert "written" not in capsys.readouterr().out


def test_a_page_is_made_of_the_report(
    tmp_path: Path, make_run: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Report] = []
    made = lambda r, folder: (given.append(r), folder / "x.html")[1]  # noqa: E731
    monkeypatch.setattr("rlfactory.report.page.write_page", made)
    report([str(make_run(tmp_path / "a")), "--format", "html", "--out", str(tmp_path / "o")])
    assert given[0].title == "a"


@pytest.mark.parametrize("words", [[], ["a", "--format", "pdf"], ["a", "--format", ""]])
def test_what_makes_no_sense_is_told(words: list[str], capsys: Capture) -> None:
    with pytest.raises(SystemExit) as caught:
        report(words)
    assert caught.value.code == 2
    assert "usage: rlfactory report" in capsys.readouterr().err


def test_an_unknown_format_is_told_the_known_ones(capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        report(["a", "--format", "csv,pdf"])
    err = capsys.readouterr().err
    assert "pdf" in err
    assert all(name in err for name in FORMATS)


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path, make_run: Make) -> None:
    run = make_run(tmp_path / "a")
    (tmp_path / "file").touch()
    words = ["--out", str(tmp_path / "file")]
    with pytest.raises(PlanError, match="can't be written") as told:
        report([str(run), "--format", "csv", *words])
    assert told.value.problems[0].fix == f"rlfactory report {run} --out a-report"
    with pytest.raises(PlanError, match="can't be written"):
        compare([str(run), str(run), *words])


def test_what_goes_elsewhere_leaves_a_run_as_it_is(tmp_path: Path, make_run: Make) -> None:
    run = make_run(tmp_path / "a")
    report([str(run), "--out", str(tmp_path / "b")])
    assert (tmp_path / "b" / "report.html").is_file()
    assert not (run / "index.html").exists()


@pytest.mark.slow
def test_torch_is_never_imported(tmp_path: Path, make_run: Make) -> None:
    runs = [make_run(tmp_path / name, media="images") for name in ("a", "b")]
    script = (
        "import sys; from rlfactory.cli.app import dispatch;"
        f"dispatch(['report', {str(tmp_path)!r}, '--format', {PLAIN!r}]);"
        f"dispatch(['compare', *{[*map(str, runs)]!r}, '--out', {str(tmp_path / 'c')!r}]);"
        "assert 'torch' not in sys.modules and 'pandas' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
