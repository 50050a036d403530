"""Which checkpoints are kept, and the best one by the held-out score."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rlfactory.run.checkpoint import find
from rlfactory.run.checkpoint.checksums import write_manifest
from rlfactory.run.checkpoint.find import BEST_FILE, Best, Retention, best_step, reading, remove
from rlfactory.run.scores import Scores
from rlfactory.utils.data_files import FileError


def scores(value: float, kl: float = float("nan")) -> Scores:
    return Scores(["a", "b"], {"main": np.array([value, value])}, kl=kl)


def test_a_higher_score_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    best = Best(tmp_path, "main")
    assert best_step(tmp_path) is None
    assert best.beaten_by(scores(-3.0))
    best.take(10, scores(-3.0))
    assert not best.beaten_by(scores(-3.0))
    assert best.beaten_by(scores(0.5))
    best.take(20, scores(0.5))
    best.write()
    assert best_step(tmp_path) is None, "its checkpoint is not there yet"
    (tmp_path / "step_000020").mkdir()
    best.write()
    assert best_step(tmp_path) == 20
    assert json.loads((tmp_path / "best.json").read_text()) == {"step": 20, "main": 0.5}


def test_a_lower_loss_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    best, lower = Best(tmp_path, "main"), {"main": "lower"}
    for step, (loss, is_better) in enumerate([(2.0, True), (2.5, False), (1.5, True)]):
        found = replace(scores(loss), better=lower)
        assert best.beaten_by(found) is is_better
        if is_better:
            best.take(step, found)
    assert (best.step, best.score) == (2, 1.5)
    assert not best.beaten_by(replace(scores(float("nan")), better=lower))


def test_what_could_not_be_scored_is_never_the_best(tmp_path: Path) -> None:
    assert not Best(tmp_path, "main").beaten_by(scores(float("nan")))


@pytest.mark.parametrize(("kl", "takes_part"), [(0.05, True), (0.2, False), (float("nan"), True)])
def test_a_step_that_went_too_far_takes_no_part(
    tmp_path: Path, kl: float, takes_part: bool
) -> None:
    assert Best(tmp_path, "main", kl=0.1).beaten_by(scores(1.0, kl)) is takes_part


def test_what_another_process_reads_stays_until_the_next_time(tmp_path: Path) -> None:
    """Evaluations, exports and samples of a run in training failed in the middle."""
    folders = [tmp_path / f"step_{step:06d}" for step in (1, 2, 3)]
    for folder in folders:
        folder.mkdir()
        write_manifest(folder, {})
    keep = Retention(1, 0)
    with reading(tmp_path / "step_000009", folders[0]), reading(folders[0]):
        keep.clear(tmp_path, [1, 2, 3], None)
        assert [folder.exists() for folder in folders] == [True, False, True]
    keep.clear(tmp_path, [1, 2, 3], None)
    assert [folder.exists() for folder in folders] == [False, False, True]


def test_a_checkpoint_that_goes_while_it_is_checked_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = (tmp_path / f"step_{step:06d}" for step in (1, 2))
    first.mkdir()

    def trained_meanwhile(folder: Path) -> None:
        if folder == first:
            first.rename(second)
            raise FileNotFoundError(first / "state.json")

    monkeypatch.setattr(find, "verify", trained_meanwhile)
    assert find.newest(tmp_path) == second
    assert not caplog.messages


def test_a_later_attempt_knows_what_was_the_best(tmp_path: Path) -> None:
    first, second = Best(tmp_path, "main"), Best(tmp_path, "main")
    second.load_state_dict(first.state_dict())
    assert second.beaten_by(scores(-3.0))
    first.take(10, scores(0.5))
    second.load_state_dict(first.state_dict())
    assert second.step == 10
    assert not second.beaten_by(scores(0.5))


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


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"step": "3"}', '{"step": 1e999}', "\x00"])
def test_a_damaged_name_of_the_best_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / BEST_FILE).write_text(text)
    with pytest.raises(FileError, match="best.json: .*; leave out --best"):
        best_step(tmp_path)
