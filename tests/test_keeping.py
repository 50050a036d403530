"""When a run is saved."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rlfactory import keeping
from rlfactory.keeping import Keeper, due
from rlfactory.run import checkpoint
from rlfactory.run.best import Best
from rlfactory.run.disk import Patience
from rlfactory.run.folder import RunFolder, RunFolderError

OPTIONS = {"every": 0, "minutes": 0, "keep": 2, "keep_every": 0, "background": False}


@pytest.fixture
def keeper(tmp_path: Path) -> Callable[..., Keeper]:
    folder = RunFolder.create(tmp_path / "run")
    return lambda **changes: Keeper(folder, OPTIONS | changes, Best(folder.checkpoints, "main"))


@pytest.mark.parametrize(("done", "every", "is_due"), [(6, 3, True), (5, 3, False), (5, 0, False)])
def test_a_turn_comes_every_so_often(done: int, every: int, is_due: bool) -> None:
    assert due(done, every) is is_due


@pytest.mark.parametrize(
    ("options", "timely"),
    [({}, set()), ({"every": 2}, {2, 4}), ({"keep_every": 3}, {3}), ({"minutes": 1}, {3})],
)
def test_it_is_time_by_number_or_by_the_clock(
    keeper: Callable[..., Keeper],
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, float],
    timely: set[int],
) -> None:
    now = [100.0]
    monkeypatch.setattr(keeping.time, "monotonic", lambda: now[0])
    made = keeper(**options)
    for done in range(1, 5):
        now[0] += 25
        if made.is_time(done):
            made._since = now[0]  # as if it was saved
    assert made.timely == timely


@pytest.fixture
def save(linear: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    model = linear()
    monkeypatch.setattr(model, "export", lambda folder: None)
    optimizer = torch.optim.SGD(model.weights.parameters.values(), lr=0.1)

    def call(keeper: Keeper, done: int) -> None:
        keeper.save(done, {"iterations": done}, model, "policy", optimizer, {"step": done})

    return call


def names(keeper: Keeper) -> set[str]:
    return {p.name for p in keeper.folder.checkpoints.iterdir()}


def test_an_iteration_is_saved_once_and_the_best_is_named(
    keeper: Callable[..., Keeper], save: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = keeper()
    save(made, 3)
    monkeypatch.setattr(keeping, "begin_checkpoint", None)
    made.best.step, made.best.score = 3, 0.5
    save(made, 3)
    assert names(made) == {"step_000003", "best.json"}


def test_what_could_not_be_written_can_be_tried_again(
    keeper: Callable[..., Keeper], save: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("disk")

    made = keeper()
    with monkeypatch.context() as patched:
        patched.setattr("rlfactory.run.checkpoint.write_manifest", fail)
        with pytest.raises(OSError, match="disk"):
            save(made, 3)
    assert names(made) == set()
    save(made, 3)
    assert names(made) == {"step_000003"}


def test_room_is_asked_for_first(
    keeper: Callable[..., Keeper], save: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, needed: int) -> None:
        raise RunFolderError(f"{needed} bytes are needed")

    made = keeper()
    monkeypatch.setattr(keeping, "enough_space", full)
    with pytest.raises(RunFolderError, match="bytes are needed"):
        save(made, 3)
    assert names(made) == set()


def test_a_disk_is_waited_for_with_the_same_state(
    keeper: Callable[..., Keeper], save: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, said = keeper(), list[str]()
    made.patience = Patience(made.folder.path, 5, said.append)
    monkeypatch.setattr("rlfactory.run.disk.FIRST", 0.01)
    save_file, calls = checkpoint.save_file, list[int]()

    def full(tensors: dict[str, torch.Tensor], path: Path) -> None:
        calls.append(1)
        if len(calls) in (1, 3):
            path.write_bytes(b"half")
            raise OSError(28, "No space left on device")
        save_file(tensors, path)

    monkeypatch.setattr(checkpoint, "save_file", full)
    save(made, 3)
    assert names(made) == {"step_000003"}
    assert checkpoint.newest(made.folder.checkpoints) is not None
    assert [line.partition(" could")[0] for line in said] == ["checkpoint step_000003"] * 2
