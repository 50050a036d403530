import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rlfactory.config.problems import PlanError, Problem
from rlfactory.report.discover import find_inputs, is_run, reports_of
from rlfactory.run.lock import owned
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
    assert reports["runs"].title == "tiny_sd3, nft, shapes, 2 runs"
    assert reports["runs"].rows[0].cells["shapes"].n == 2


def test_a_report_has_the_name_of_a_folder(tmp_path: Path, filled_sweep: Make) -> None:
    for name in ("s1", "s2"):
        table = filled_sweep(tmp_path / name) / "sweep.json"
        table.write_text(table.read_text().replace('"made"', '"../../made"'))
    assert [*reports_of([tmp_path])] == [".._.._made-tiny", ".._.._made-tiny_2"]


def test_runs_are_a_table_of_their_scores(tmp_path: Path, make_run: Make) -> None:
    reports = reports_of([make_run(tmp_path / "a")])
    assert [(c.name, c.measure) for c in reports["runs"].columns] == [
        ("before", "before/shapes"),
        ("shapes", "eval/shapes"),
        ("diversity", "eval/diversity"),
    ]
    assert reports["runs"].title == "a"


def test_each_prompt_set_has_its_scores_before_and_after(tmp_path: Path, make_run: Make) -> None:
    runs = [make_run(tmp_path / str(seed), seed=seed) for seed in (0, 1)]
    for number, run in enumerate(runs):
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        for line, value in ((lines[0], 0.25), (lines[-1], 0.5 + 0.25 * number)):
            line |= {"eval/signs/ocr/mean": value, "eval/signs/hps/mean": 1.0}
        (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    report = reports_of(runs)["runs"]
    assert [(c.name, c.label, c.measure) for c in report.columns][2:5] == [
        ("signs/before", "signs: ocr before", "before/signs/ocr"),
        ("signs/ocr", "signs: ocr", "eval/signs/ocr"),
        ("signs/hps", "signs: hps", "eval/signs/hps"),
    ]
    cells = report.rows[0].cells
    assert cells["signs/before"].mean == 0.25
    assert cells["signs/ocr"].values == [0.5, 0.75]
    low, high = cells["signs/ocr"].interval
    assert low < 0.5 < 0.75 < high


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
    assert problem.message == "no run is done yet (1 failed)"
    assert problem.fix == f"rlfactory resume {run}"
    with owned(run):
        problem = problem_of(run)
    assert f"(1 failed); {run} is in use by process" in problem.message
    assert not problem.fix
    sweep = make_sweep(tmp_path / "s")
    problem = problem_of(sweep)
    assert problem.message == "no run is done yet (4 not begun)"
    assert not problem.fix, "its file may be anywhere"
    table = json.loads((sweep / TABLE_FILE).read_text())
    (sweep / TABLE_FILE).write_text(json.dumps(table | {"name": "window"}))
    assert problem_of(sweep).fix == f"rlfactory sweep window size=tiny sweep_dir={sweep}"


def test_only_damaged_runs_say_what_is_wrong_with_them(tmp_path: Path, make_run: Make) -> None:
    run = make_run(tmp_path / "a")
    (run / "config.yaml").unlink()
    assert "config.yaml is missing" in problem_of(run).message


def test_pictures_and_texts_make_two_tables(tmp_path: Path, make_run: Make) -> None:
    runs = [make_run(tmp_path / media, media=media) for media in ("images", "texts")]
    assert [*reports_of(runs)] == ["runs-shapes_images", "runs-shapes_texts"]


def test_runs_without_a_score_in_common_make_a_table_each(tmp_path: Path, make_run: Make) -> None:
    made = [("a", "shapes", 0), ("b", "shapes", 1), ("c", "my score/x", 0)]
    runs = [make_run(tmp_path / name, score=score, seed=seed) for name, score, seed in made]
    failed = make_run(tmp_path / "d", status="failed")
    reports = reports_of([*runs, failed])
    assert [*reports] == ["runs-shapes", "runs-my_score_x"]
    assert [len(r.rows) for r in reports.values()] == [1, 1]
    assert any("d (failed)" in note for note in reports["runs-shapes"].notes)


def test_a_run_that_was_never_evaluated_is_told(tmp_path: Path, make_run: Make) -> None:
    runs = [make_run(tmp_path / name) for name in "ab"]
    metrics = runs[0] / "metrics.jsonl"
    lines = [line for line in metrics.read_text().splitlines() if "eval/" not in line]
    metrics.write_text("\n".join(lines) + "\n")
    problem = problem_of(*runs)
    assert f"{runs[0]} has no evaluation" in problem.message
    assert problem.fix == f"rlfactory report {runs[1]}"


def test_scores_are_judged_as_their_reward_says(tmp_path: Path, make_run: Make) -> None:
    run = make_run(tmp_path / "a")
    path = run / "evaluations" / "000000.json"

    def better(said: dict[str, str] | None) -> str:
        content = json.loads(path.read_text())
        path.write_text(json.dumps(content | {"better": said}))
        (column,) = (c for c in reports_of([run])["runs"].columns if c.name == "shapes")
        return column.better

    assert better({"shapes": "higher"}) == "higher"
    assert better({"shapes": "lower"}) == "lower"
    assert better({"other": "higher"}) == "neither"
    assert better(None) == "higher"  # an earlier version says nothing: its first score trains


def test_where_less_is_better_the_smaller_is_compared_so(tmp_path: Path, make_run: Make) -> None:
    """A secondary score of which less is better, beside its negative that trains."""
    for lr, mean in (("a", -1.2), ("b", -1.3)):
        for seed in range(3):
            run = make_run(
                tmp_path / f"{lr}{seed}",
                score="compressibility",
                seed=seed,
                after=mean - seed / 1000,
                config={"optimizer": {"lr": lr}},
            )
            lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
            for line in lines:
                if (value := line.get("eval/compressibility/mean")) is not None:
                    line["eval/jpeg_kb/mean"] = -value
            text = "".join(json.dumps(line) + "\n" for line in lines)
            (run / "metrics.jsonl").write_text(text)
            first = run / "evaluations" / "000000.json"
            said = {"compressibility": "higher", "jpeg_kb": "lower"}
            first.write_text(json.dumps(json.loads(first.read_text()) | {"better": said}))
    report = reports_of([tmp_path])["runs"]
    (table,) = [s.table for s in report.tables if s.title == "Against the first row"]
    chances = {line[2]: line[6] for line in table.lines}
    assert chances == dict.fromkeys(("compressibility", "jpeg_kb", "all together"), "0.00")


def test_other_prompts_are_told(tmp_path: Path, make_run: Make) -> None:
    runs = [
        make_run(tmp_path / str(count), config={"evaluation": {"prompts": count}})
        for count in (3, 5)
    ]
    notes = reports_of(runs)["runs"].notes
    assert notes[0] == "Not all runs used the same evaluation prompts."


def test_a_damaged_table_is_told(tmp_path: Path, make_sweep: Make) -> None:
    folder = make_sweep(tmp_path / "s")
    (folder / TABLE_FILE).write_text('{"name": "x"')
    assert "sweep.json can't be read" in problem_of(folder).message


def test_runs_and_sweeps_are_found_below_a_folder(
    tmp_path: Path, make_run: Make, filled_sweep: Make
) -> None:
    sweep = filled_sweep(tmp_path / "x" / "sweep")
    runs = [make_run(tmp_path / name) for name in ("b", "a/deep")]
    assert find_inputs([tmp_path]) == ([sweep], [runs[1], runs[0]])


def test_what_is_named_twice_counts_once(tmp_path: Path, make_run: Make) -> None:
    run = make_run(tmp_path / "a")
    assert find_inputs([run, tmp_path, run / ".." / "a"])[1] == [run / ".." / "a"]


def test_a_hidden_folder_holds_nothing(tmp_path: Path, make_run: Make) -> None:
    make_run(tmp_path / ".trash" / "a")
    with pytest.raises(PlanError, match="holds none"):
        find_inputs([tmp_path])


def test_a_name_that_is_too_long_is_no_folder() -> None:
    with pytest.raises(PlanError) as refused:
        find_inputs([Path("n" * 300)])
    assert "there is no such folder" in refused.value.problems[0].message
    assert not is_run(Path("n" * 300))


def test_each_path_that_is_nothing_is_told(tmp_path: Path, make_run: Make) -> None:
    make_run(tmp_path / "good_run")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    names = ["good_rum", "empty", "file", "good_run"]
    with pytest.raises(PlanError) as caught:
        find_inputs([tmp_path / name for name in names])
    messages = [problem.message for problem in caught.value.problems]
    assert len(messages) == 3
    assert messages[0].endswith(f"Did you mean {tmp_path / 'good_run'}?")
    assert messages[1] == "is empty"
    assert "is a file" in messages[2]
