from collections.abc import Callable
from pathlib import Path

import pytest

from rlfactory.problems import PlanError, Problem
from rlfactory.report.sources import reports_of
from rlfactory.sweep.table import TABLE_FILE

Make = Callable[..., Path]


def problem_of(*paths: Path) -> Problem:
    with pytest.raises(PlanError) as caught:
        reports_of(paths)
    (problem,) = caught.value.problems
    return problem


def test_each_sweep_is_a_report_and_all_runs_are_one(
    tmp_path: Path, filled_sweep: Make, make_run: Make
) -> None:
    for name in ("s1", "s2"):
        filled_sweep(tmp_path / name)
    make_run(tmp_path / "a")
    make_run(tmp_path / "b", seed=1)
    reports = reports_of([tmp_path])
    assert [*reports] == ["made-tiny", "made-tiny_2", "runs"]
    assert reports["made-tiny"].title == "Shapes & shares (tiny)"
    assert reports["runs"].title == "2 runs"
    assert reports["runs"].rows[0].cells["shapes"].n == 2


def test_runs_are_a_table_of_their_scores(tmp_path: Path, make_run: Make) -> None:
    reports = reports_of([make_run(tmp_path / "a")])
    assert [(c.name, c.measure) for c in reports["runs"].columns] == [
        ("before", "before/shapes"),
        ("shapes", "eval/shapes"),
        ("diversity", "eval/diversity"),
    ]
    assert reports["runs"].title == "a"


def test_a_damaged_run_is_named_and_the_others_are_reported(
    tmp_path: Path, make_run: Make, filled_sweep: Make
) -> None:
    for folder in (make_run(tmp_path / "a"), make_run(tmp_path / "b")):
        (folder / "metrics.jsonl").write_text("{\n") if folder.name == "a" else None
    sweep = filled_sweep(tmp_path / "s")
    (sweep / "nft-s0" / "config.yaml").write_text("")
    reports = reports_of([tmp_path])
    assert "b" not in "".join(row.name for row in reports["runs"].rows if row.status == "1 damaged")
    assert any(str(tmp_path / "a") in note for note in reports["runs"].notes)
    assert reports["made-tiny"].rows[0].status == "1 damaged, 1 done"
    assert any("nft-s0" in note for note in reports["made-tiny"].notes)


def test_nothing_that_is_done_is_no_report(
    tmp_path: Path, make_run: Make, make_sweep: Make
) -> None:
    run = make_run(tmp_path / "a", status="failed")
    problem = problem_of(run)
    assert problem.message == "nothing here is done yet (1 failed)"
    assert problem.remedy == f"rlfactory resume {run}"
    problem = problem_of(make_sweep(tmp_path / "s"))
    assert problem.message == "nothing here is done yet (4 not begun)"
    assert problem.remedy == "rlfactory sweep made size=tiny"


def test_only_damaged_runs_say_what_is_wrong_with_them(tmp_path: Path, make_run: Make) -> None:
    run = make_run(tmp_path / "a")
    (run / "config.yaml").unlink()
    assert "config.yaml is missing" in problem_of(run).message


def test_pictures_and_texts_make_no_table(tmp_path: Path, make_run: Make) -> None:
    runs = [make_run(tmp_path / media, media=media) for media in ("images", "texts")]
    problem = problem_of(*runs)
    assert f"{runs[0]} draws images; {runs[1]} draws texts" in problem.message
    assert problem.remedy == f"rlfactory report {runs[0]}"


def test_runs_without_a_score_in_common_make_no_table(tmp_path: Path, make_run: Make) -> None:
    runs = [make_run(tmp_path / score, score=score) for score in ("shapes", "jpeg")]
    assert f"{runs[1]} has jpeg" in problem_of(*runs).message


def test_other_prompts_are_told(tmp_path: Path, make_run: Make) -> None:
    runs = [
        make_run(tmp_path / str(count), config={"evaluation": {"prompts": count}})
        for count in (3, 5)
    ]
    notes = reports_of(runs)["runs"].notes
    assert notes[0] == "Not all runs are judged by the same held-out prompts."


def test_a_damaged_table_is_told(tmp_path: Path, make_sweep: Make) -> None:
    folder = make_sweep(tmp_path / "s")
    (folder / TABLE_FILE).write_text('{"name": "x"')
    assert "sweep.json can't be read" in problem_of(folder).message
