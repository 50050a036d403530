"""A run folder as it was at a checkpoint."""

from pathlib import Path

from rlfactory.run.folder import RunFolder
from rlfactory.train.checkpointing.resume_point import rewind


def names(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}


def test_what_came_later_goes_and_all_else_stays(tmp_path: Path) -> None:
    early = {
        "metrics.jsonl",
        "config.yaml",
        "samples/strip.png",
        "evaluations/000000.json",
        "evaluations/000010.json",
        "evaluations/2026-01-02_03-04-05-123456.json",
        "samples/eval_000010.png",
        "samples/2026-01-02_03-04-05-123456.png",
        "samples/strip/000010_5.png",
        "samples/drawn/000011.png",
        "checkpoints/step_000020/weights.safetensors",
    }
    late = {
        "evaluations/000011.json",
        "evaluations/1000000.json",
        "samples/eval_000020.md",
        "samples/strip/000020_0.png",
        "samples/strip/000020.json",
    }
    for name in early | late:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1\n2\n3\n")
    assert rewind(RunFolder(tmp_path), 10, 2) == 2
    assert names(tmp_path) == early
    assert (tmp_path / "metrics.jsonl").read_text() == "1\n2\n"


def test_what_is_not_whole_goes(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    for name in (".STATUS.ab12.unfinished", "checkpoints/.best.json.cd34.unfinished", ".mine"):
        (tmp_path / name).write_text("hal")
    rewind(RunFolder(tmp_path), 10, 2)
    assert names(tmp_path) == {".mine"}


def test_lines_that_are_lost_are_counted(tmp_path: Path) -> None:
    assert rewind(RunFolder(tmp_path), 10, 2) == 0
    (tmp_path / "metrics.jsonl").write_text("1\ntorn")
    assert rewind(RunFolder(tmp_path), 10, 2) == 1
    assert (tmp_path / "metrics.jsonl").read_text() == "1\n"


def test_a_last_line_that_was_torn_goes(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"iteration": 0}\n{"iteration": 1}\n{"iter')
    assert rewind(RunFolder(tmp_path), 1, 2) == 2
    assert (tmp_path / "metrics.jsonl").read_text().endswith('{"iteration": 1}\n')
