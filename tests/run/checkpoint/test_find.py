"""The newest undamaged checkpoint."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rlfactory.model.base import ImageModel
from rlfactory.model.weight_sets import EMA
from rlfactory.run.checkpoint.find import checkpoint_of, newest, put_aside, remove_unfinished
from rlfactory.run.checkpoint.save import begin_checkpoint


def test_the_newest_has_the_highest_number(model: ImageModel, tmp_path: Path) -> None:
    for number in (2, 1000010, 9):
        begin_checkpoint(checkpoint_of(tmp_path, number), model, EMA, {})()
    assert newest(tmp_path) == tmp_path / "step_1000010"


def test_a_damaged_one_is_named_and_put_aside_and_the_one_before_is_used(
    model: ImageModel, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number in (1, 2, 3):
        begin_checkpoint(checkpoint_of(tmp_path, number), model, EMA, {})()
    (tmp_path / "step_000003" / "state.json").write_text("{}")
    (tmp_path / "step_000002" / "MANIFEST.json").unlink()
    assert newest(tmp_path) == tmp_path / "step_000001"
    assert (tmp_path / "step_000003").is_dir(), "whoever only reads moves nothing"
    told: list[str] = []
    assert newest(tmp_path, told.append) == tmp_path / "step_000001"
    assert "step_000003 is damaged: state.json has 2 bytes instead of 3" in told[0]
    assert "kept as damaged_step_000002" in told[1]
    assert {p.name for p in tmp_path.iterdir()} == {
        "step_000001",
        "damaged_step_000002",
        "damaged_step_000003",
    }
    assert "state.json" in caplog.text


def test_what_was_damaged_before_is_not_overwritten(tmp_path: Path) -> None:
    for expected in ("damaged_step_000001", "damaged_step_000001_1"):
        (tmp_path / "step_000001").mkdir()
        assert put_aside(tmp_path / "step_000001").name == expected


def test_what_was_never_finished_is_swept_away(model: ImageModel, tmp_path: Path) -> None:
    (tmp_path / ".step_000001").mkdir()  # as of a process that was killed while it wrote
    assert [p.name for p in tmp_path.iterdir()] == [".step_000001"]
    assert newest(tmp_path) is None
    remove_unfinished(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("make", [os.mkfifo, Path.touch, Path.mkdir])
def test_what_was_never_finished_goes_whatever_it_is(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / ".step_000009")
    remove_unfinished(tmp_path)
    assert not [*tmp_path.iterdir()]
