"""Which checkpoints stay."""

from pathlib import Path

import pytest

from rlfactory.run.retention import Retention, remove


@pytest.mark.parametrize(
    ("keep", "keep_every", "timely", "best", "staying"),
    [
        (None, 0, [2, 4, 6], None, {2, 4, 6, 7}),
        (1, 0, [2, 4, 6], None, {6, 7}),
        (2, 0, [2, 4, 6], 3, {3, 4, 6, 7}),
        (2, 0, [], 3, {3, 7}),
        (1, 3, [2, 4, 6], None, {3, 6, 7}),
        (1, 0, [6], 99, {6, 7}),
    ],
)
def test_the_newest_the_best_and_the_last_few_stay(
    keep: int | None, keep_every: int, timely: list[int], best: int | None, staying: set[int]
) -> None:
    assert Retention(keep, keep_every).staying([2, 3, 4, 5, 6, 7], timely, best) == staying


def test_where_there_is_none_nothing_stays(tmp_path: Path) -> None:
    assert Retention(1, 0).staying([], [], 3) == set()
    Retention(1, 0).clear(tmp_path, [], None)


def test_the_others_are_removed_but_for_the_damaged(tmp_path: Path) -> None:
    names = ["step_000001", "step_000002", "step_000003", "damaged_step_000001", ".step_000004"]
    for name in names:
        (tmp_path / name / "deep").mkdir(parents=True)
    (tmp_path / "best.json").write_text("{}")
    Retention(1, 0).clear(tmp_path, [1, 2], None)
    left = {p.name for p in tmp_path.iterdir()}
    assert left == {*names[1:], "best.json"}


def test_what_is_half_removed_is_no_checkpoint_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "step_000001").mkdir()
    monkeypatch.setattr("shutil.rmtree", lambda path: None)
    remove(tmp_path / "step_000001")
    assert [p.name for p in tmp_path.iterdir()] == [".step_000001.removed"]
